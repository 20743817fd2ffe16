"""What an exception of job code leaves behind, however broken it is."""

import json

import pytest

from holdfast import limits
from holdfast.core.failure import Failure, failure_of
from holdfast.worker.failures import MESSAGE_CHARS_MAX, TRACEBACK_CHARS_MAX, described, reason_of


class UnshowableError(Exception):
    """Has no words."""

    def __str__(self) -> str:
        raise ValueError("no words")


def raised(error: BaseException) -> BaseException:
    """The error with a traceback."""
    try:
        raise error  # noqa: TRY301 - that is what it is for
    except BaseException as caught:  # noqa: BLE001 - that is what it is for
        return caught


def deep(depth: int) -> None:
    if depth:
        deep(depth - 1)
    raise ValueError("x" * 100_000)


def test_description_is_read_back() -> None:
    """The result of a failed job has the exception's type, its words and where it was raised."""
    failure = failure_of(described(raised(ValueError("bad"))))
    assert (failure.type, failure.message) == ("ValueError", "bad")
    assert "in raised" in failure.traceback
    assert failure.traceback.endswith("ValueError: bad\n")


def test_deep_and_wordy_exception_is_a_small_output() -> None:
    """However deep and wordy, message, traceback and reason are bounded."""
    with pytest.raises(ValueError, match="x") as caught:
        deep(500)
    failure = failure_of(described(caught.value))
    assert len(failure.message) == MESSAGE_CHARS_MAX
    assert len(failure.traceback) <= TRACEBACK_CHARS_MAX
    assert failure.traceback.endswith("xxx...\n")
    assert len(reason_of(caught.value)) == limits.REASON_CHARS_MAX


def test_type_is_named_in_full() -> None:
    """Exceptions of the user's modules carry their module; those of Python do not."""
    assert failure_of(described(raised(KeyError("k")))).type == "KeyError"
    assert failure_of(described(raised(json.JSONDecodeError("m", "", 0)))).type == "json.decoder.JSONDecodeError"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KeyError("k"), "KeyError: 'k'"),
        (MemoryError(), "MemoryError"),
        (ValueError("bad \udc80"), "ValueError: bad ?"),
        (UnshowableError(), "UnshowableError: it cannot be shown"),
    ],
)
def test_reason_is_a_line_for_every_exception(error: Exception, reason: str) -> None:
    """Without words, with words that are no text, or with none that can be shown."""
    assert reason_of(error) == reason
    assert failure_of(described(error)).message in reason


@pytest.mark.parametrize("output", [b"", b"\xff", b"[]", b'{"type": 7}'])
def test_output_that_describes_nothing_is_an_empty_failure(output: bytes) -> None:
    """A failed job may have left any bytes."""
    assert failure_of(output) == Failure()


def test_long_message_leaves_the_frames_in_the_traceback() -> None:
    """The traceback of an exception with a huge message still says where it was raised."""
    failure = failure_of(described(raised(ValueError("x" * 5_000_000))))
    assert "in raised" in failure.traceback
    assert "ValueError: xxx" in failure.traceback
    assert len(failure.traceback) <= TRACEBACK_CHARS_MAX
