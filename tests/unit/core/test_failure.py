"""Failure descriptions: parsing and size limits."""

import msgspec
import pytest

from holdfast import limits
from holdfast.core.failure import Failure, bounded, failure_of, traceback_of

HUGE = Failure("E" * 100_000, "m" * 100_000, "\x01" * 200_000 + "the end")


def test_description_that_fits_is_kept_as_it_is() -> None:
    """The journal stores a failure description that fits as the worker's own bytes."""
    output = msgspec.json.encode(Failure("ValueError", "bad", "Traceback"))
    assert bounded(output) == output


def test_description_that_is_too_large_keeps_the_end_of_its_traceback() -> None:
    """A shortened description fits, however much is escaped in it, and keeps the last lines of its traceback."""
    output = bounded(msgspec.json.encode(HUGE))
    assert len(output) <= limits.FAILURE_BYTES_MAX
    assert failure_of(output).traceback.endswith("the end")


@pytest.mark.parametrize("output", [b"", b"\xff\x00", b"[1]", b"{}", b'"text"', b"x" * 200_000])
def test_output_that_describes_no_failure_is_not_kept(output: bytes) -> None:
    """An output that is not a failure description is dropped."""
    assert bounded(output) == b""
    assert traceback_of(output) == ""


def test_traceback_in_a_history_is_bounded_in_bytes() -> None:
    """The tracebacks of all attempts that a job may have fit into one message of its history."""
    shown = traceback_of(msgspec.json.encode(Failure("E", "", "\U0001f4a5" * 60_000 + "the end")))
    assert shown.endswith("the end")
    assert len(shown.encode()) <= limits.DETAIL_BYTES_MAX
    assert limits.ATTEMPTS_MAX * limits.DETAIL_BYTES_MAX < limits.MESSAGE_BYTES_MAX
