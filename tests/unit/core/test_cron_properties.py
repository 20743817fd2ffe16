"""Cron with random expressions, zones and instants, compared with a check of every minute."""

import itertools
from datetime import datetime
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core import cron
from tests.fuzz.cron_walk import MINUTE_S, PLACES, fields_of, ticks

SPAN_MINUTES = 40 * 60


def field(low: int, high: int) -> st.SearchStrategy[str]:
    """A field: a star, a step, numbers, a range, or a list."""
    number = st.integers(low, high)
    span = st.tuples(number, number).map(sorted)
    one = st.one_of(
        number.map(str),
        span.map(lambda ends: f"{ends[0]}-{ends[1]}"),
        st.tuples(span, st.integers(1, 7)).map(lambda parts: f"{parts[0][0]}-{parts[0][1]}/{parts[1]}"),
    )
    return st.one_of(
        st.just("*"),
        st.integers(1, high).map(lambda step: f"*/{step}"),
        st.lists(one, min_size=1, max_size=3).map(",".join),
    )


MOSTLY_ANY = st.just("*")
EXPRESSIONS = st.tuples(
    field(0, 59),
    st.one_of(field(0, 23), field(0, 4)),
    st.one_of(MOSTLY_ANY, MOSTLY_ANY, field(1, 31)),
    st.one_of(MOSTLY_ANY, MOSTLY_ANY, field(1, 12)),
    st.one_of(MOSTLY_ANY, MOSTLY_ANY, field(0, 7)),
).map(" ".join)


def is_valid(expression: str) -> bool:
    """Returns false for dates that occur in no year."""
    return cron.is_readable(expression, "UTC")


@settings(max_examples=80)
@given(EXPRESSIONS.filter(is_valid), st.sampled_from(PLACES), st.integers(-30 * 60, 0))
def test_no_tick_is_left_out_and_none_is_made_up(
    expression: str, place: tuple[str, datetime], minutes_before: int
) -> None:
    """Around every kind of clock change, cron finds the same ticks as a check of every minute, each once."""
    timezone, change = place
    zone, start_s = ZoneInfo(timezone), int(change.timestamp()) + minutes_before * MINUTE_S
    end_ms = (start_s + SPAN_MINUTES * MINUTE_S) * 1_000
    found, tick_ms = [], start_s * 1_000 - 1
    while 0 < (tick_ms := cron.next_after(expression, timezone, tick_ms)) < end_ms:
        found.append(tick_ms // 1_000)
    assert found == list(ticks(fields_of(expression), zone, start_s - 1, end_ms // 1_000 - 1))
    assert all(first < second for first, second in itertools.pairwise(found))
    assert cron.count_between(expression, timezone, start_s * 1_000, end_ms) == len(found)
    if found:
        assert cron.last_until(expression, timezone, end_ms - 1) == found[-1] * 1_000


@settings(max_examples=200)
@given(
    EXPRESSIONS.filter(is_valid),
    st.sampled_from(sorted({zone for zone, _ in PLACES})),
    st.integers(0, 4_102_444_800_000),
)
def test_views_of_the_sequence_agree(expression: str, timezone: str, at_ms: int) -> None:
    """From any instant, the next tick is later, no tick lies between, and the last tick until then is the same one."""
    next_ms = cron.next_after(expression, timezone, at_ms)
    if not next_ms:
        return
    assert next_ms > at_ms
    assert next_ms % 1_000 == 0
    assert cron.last_until(expression, timezone, next_ms) == next_ms
    assert cron.last_until(expression, timezone, next_ms - 1) <= at_ms
    assert cron.next_after(expression, timezone, next_ms - 1) == next_ms
    if next_ms - at_ms < 40 * 86_400_000:
        assert cron.count_between(expression, timezone, at_ms + 1, next_ms) == 0
        assert cron.count_between(expression, timezone, at_ms + 1, next_ms + 1) == 1


@settings(max_examples=300)
@given(st.text(max_size=40) | st.text(alphabet="0123456789*/,-#LW@ abcdefjmnostuw", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Cron parses or refuses any text without another error, and computes a next tick for each parsed one."""
    try:
        five = cron.canonical(text)
    except ValueError:
        return
    assert len(five.split()) == 5
    cron.next_after(text, "Europe/Paris", 1_767_225_600_000)
