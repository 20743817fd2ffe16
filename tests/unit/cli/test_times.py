"""Times and durations that users type."""

import pytest

from holdfast.cli.times import local_ms, span_ms
from holdfast.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 90_000), ("5m", 300_000), ("1h30m", 5_400_000), ("7d", 604_800_000), ("250ms", 250), ("45", 45_000)],
)
def test_span_is_the_sum_of_its_parts(text: str, expected: int) -> None:
    """A duration may have several parts, and a number without a unit is in seconds."""
    assert span_ms(text, "--every") == expected


@pytest.mark.parametrize("text", ["", "soon", "5 m", "5M", "-5m", "1.5h", "5mm", "m5", "5m!", "\u0665", "9" * 30])
def test_invalid_duration_is_refused_with_examples(text: str) -> None:
    """The error shows examples of valid durations."""
    with pytest.raises(InvalidArgumentError, match="--every must be a duration such as 90s"):
        span_ms(text, "--every")


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("2026-12-24T18:00", "Europe/Paris", 1_798_131_600_000),
        ("2026-12-24T17:00Z", "Europe/Paris", 1_798_131_600_000),
        ("2026-12-24T18:00+01:00", "Asia/Tokyo", 1_798_131_600_000),
        ("1970-01-02", "UTC", 86_400_000),
        ("2026-10-25T02:30", "Europe/Paris", 1_792_888_200_000),
    ],
)
def test_moment_goes_by_the_clocks_of_the_zone(text: str, zone: str, expected: int) -> None:
    """A time without an offset is in the zone, and an ambiguous one is the first of the two."""
    assert local_ms(text, zone, "--at") == expected


@pytest.mark.parametrize(
    ("text", "zone", "words"),
    [
        ("tomorrow", "UTC", "a time such as"),
        ("2026-03-29T02:30", "Europe/Paris", "does not exist in Europe/Paris"),
        ("2026-12-24T18:00", "Mars/Base", "the name of a time zone"),
        ("2026-12-24T18:00", "../../etc/passwd", "the name of a time zone"),
    ],
)
def test_moment_that_cannot_be_is_refused(text: str, zone: str, words: str) -> None:
    """A text that is no time, a time that a clock change skips, and an unknown zone are refused."""
    with pytest.raises(InvalidArgumentError, match=words):
        local_ms(text, zone, "--at")
