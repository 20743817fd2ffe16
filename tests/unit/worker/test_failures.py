"""Reasons and descriptions of exceptions in job code, also of broken ones."""

import json

import pytest

from holdfast import limits
from holdfast.core.failure import Failure, failure_of
from holdfast.worker.failures import MESSAGE_CHARS_MAX, TRACEBACK_CHARS_MAX, described, reason_of


class UnshowableError(Exception):
    """An exception whose `__str__` raises."""

    def __str__(self) -> str:
        raise ValueError("no words")


def raised(error: BaseException) -> BaseException:
    """The error with a traceback."""
    try:
        raise error  # noqa: TRY301 - to give it a traceback
    except BaseException as caught:  # noqa: BLE001 - whatever was raised above
        return caught


def deep(depth: int) -> None:
    if depth:
        deep(depth - 1)
    raise ValueError("x" * 100_000)


def test_description_is_read_back() -> None:
    """The description of an exception has its type, its message and its traceback."""
    failure = failure_of(described(raised(ValueError("bad"))))
    assert (failure.type, failure.message) == ("ValueError", "bad")
    assert "in raised" in failure.traceback
    assert failure.traceback.endswith("ValueError: bad\n")


def test_deep_and_wordy_exception_is_a_small_output() -> None:
    """Message, traceback and reason of a deep exception with a long message are cut to their limits."""
    with pytest.raises(ValueError, match="x") as caught:
        deep(500)
    failure = failure_of(described(caught.value))
    assert len(failure.message) == MESSAGE_CHARS_MAX
    assert len(failure.traceback) <= TRACEBACK_CHARS_MAX
    assert failure.traceback.endswith("xxx...\n")
    assert len(reason_of(caught.value)) == limits.REASON_CHARS_MAX


def test_type_is_named_in_full() -> None:
    """The type includes the module, except for built-in exceptions."""
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
    """An exception without a message, with invalid text or with a broken `__str__` has a reason of one line."""
    assert reason_of(error) == reason
    assert failure_of(described(error)).message in reason


@pytest.mark.parametrize("output", [b"", b"\xff", b"[]", b'{"type": 7}'])
def test_output_that_describes_nothing_is_an_empty_failure(output: bytes) -> None:
    """Output that is no description is read as an empty failure."""
    assert failure_of(output) == Failure()


def test_long_message_leaves_the_frames_in_the_traceback() -> None:
    """The traceback of an exception with a huge message still shows where it was raised."""
    failure = failure_of(described(raised(ValueError("x" * 5_000_000))))
    assert "in raised" in failure.traceback
    assert "ValueError: xxx" in failure.traceback
    assert len(failure.traceback) <= TRACEBACK_CHARS_MAX
