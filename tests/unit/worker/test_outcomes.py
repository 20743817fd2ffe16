"""Outcomes, made from what a handler returned or raised."""

import math
from typing import cast

import pytest

from holdfast import limits
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import CANCELED, DONE, FAILED
from holdfast.ports import Assignment
from holdfast.worker.context import CancelInterrupt, JobContext, TimeoutInterrupt
from holdfast.worker.handlers import AttemptFailedError, Handler
from holdfast.worker.outcomes import cut, failed, succeeded


def context_of() -> JobContext:
    async def run(_: Assignment) -> bytes:
        return b""

    return JobContext(Assignment(7, "job", "t"), Handler(run), 0.0, lambda _: None)


def test_attempt_decides_on_its_retry_and_output() -> None:
    """The outcome keeps the handler's reason, retry decision, delay and output, within the limits."""
    error = AttemptFailedError("FULL", is_retryable=False, retry_after_ms=1 << 60, output=b"why")
    row = failed(context_of(), error)
    assert (row.state, row.failure_reason, row.is_retryable, row.output) == (FAILED, "FULL", False, b"why")
    assert row.retry_after_ms == limits.DELAY_MS_MAX


def test_output_of_a_failure_that_is_too_large_is_left_out() -> None:
    """A failure with an output above the limit keeps its reason and loses its output."""
    row = failed(context_of(), AttemptFailedError("R", output=bytes(limits.OUTPUT_BYTES_MAX + 1)))
    assert (row.failure_reason, row.output) == ("R", b"")


class _NoText(str):
    __slots__ = ()

    def __getitem__(self, _: object) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    "error", [AttemptFailedError("R", retry_after_ms=cast("int", math.nan)), AttemptFailedError(_NoText())]
)
def test_nothing_that_is_raised_is_more_than_a_failure(error: Exception) -> None:
    """A broken exception fails its attempt, and does not end the thread that runs it."""
    row = failed(context_of(), error)
    assert (row.state, row.token) == (FAILED, 7)


@pytest.mark.parametrize(
    ("interrupt", "expected"), [(TimeoutInterrupt, (FAILED, "TIMEOUT")), (CancelInterrupt, (CANCELED, ""))]
)
def test_exception_after_an_interrupt_does_not_hide_it(
    interrupt: type[TimeoutInterrupt | CancelInterrupt], expected: tuple[int, str]
) -> None:
    """An exception that job code raises after an interrupt does not hide the interrupt."""
    context = context_of()
    context.interrupt = interrupt
    row = failed(context, ValueError("confused"))
    assert (row.state, row.failure_reason) == expected


def test_job_that_is_done_in_spite_of_an_interrupt_is_done() -> None:
    """A handler that returns in spite of an interrupt has succeeded."""
    context = context_of()
    context.interrupt = CancelInterrupt
    assert succeeded(context, b"done").state == DONE


def test_reports_fit_into_messages() -> None:
    """Outcomes are split into reports by size, in order, and none is lost."""
    rows = [ReportRow("job", token, DONE, bytes(limits.OUTPUT_BYTES_MAX)) for token in range(40)]
    parts = list(cut(rows))
    assert [row for part in parts for row in part] == rows
    assert max(sum(len(row.output) for row in part) for part in parts) <= limits.BATCH_BYTES_MAX
