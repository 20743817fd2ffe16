"""The outcome of an attempt, as reported to the backend: made from what the handler returned or raised.

Nothing that job code returns or raises ends the worker. Every value and every exception, even one without a printable
message, becomes the outcome of its attempt.
"""

import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from typing import NoReturn

from holdfast import limits
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import CANCELED, DONE, FAILED
from holdfast.core.text import as_text
from holdfast.worker.context import JobContext, TimeoutInterrupt
from holdfast.worker.failures import described, reason_of
from holdfast.worker.handlers import AttemptFailedError, output_too_large

#: The longest runtime that is reported: seven weeks.
RUNTIME_MS_MAX = (1 << 32) - 1


def succeeded(context: JobContext, output: object) -> ReportRow:
    """The outcome of a handler that returned; a failure if its output is not valid."""
    if os.getpid() != context.pid:
        _end_fork()
    assignment = context.assignment
    context.ended_s = ended_s = time.monotonic()
    if type(output) is not bytes:
        summary = f"OUTPUT_NOT_BYTES: the handler must return bytes, got {type(output).__name__}"
        return failed(context, AttemptFailedError("OUTPUT_NOT_BYTES", is_retryable=False, summary=summary))
    if len(output) > limits.OUTPUT_BYTES_MAX:
        return failed(context, output_too_large(len(output)))
    runtime_ms = min(int((ended_s - context.started_s) * 1_000), RUNTIME_MS_MAX)
    return ReportRow(assignment.job_id, assignment.token, DONE, output, "", "", runtime_ms)


def failed(context: JobContext, error: BaseException) -> ReportRow:
    """The outcome of a handler that raised. After an interrupt, the interrupt decides and not the exception."""
    if os.getpid() != context.pid:
        _end_fork(error)
    if context.interrupt is not None:
        return interrupted(context)
    try:
        if isinstance(error, AttemptFailedError):
            return _said(context, error)
        return failure(context, reason_of(error), output=described(error))
    except Exception:  # noqa: BLE001 - a broken exception class: an error raised here would end the slot's thread
        return failure(context, "UNSHOWABLE: the exception that the job raised cannot be described")


def interrupted(context: JobContext) -> ReportRow:
    """The outcome of an attempt that was interrupted."""
    if context.interrupt is TimeoutInterrupt:
        return failure(context, "TIMEOUT")
    return ReportRow(context.job_id, context.token, CANCELED, runtime_ms=_runtime_ms(context))


def failure(
    context: JobContext,
    reason: str,
    *,
    output: bytes = b"",
    summary: str = "",
    is_retryable: bool = True,
    retry_after_ms: int = 0,
) -> ReportRow:
    """A failed outcome, with reason and summary cut to their limits and made valid text."""
    return ReportRow(
        context.job_id,
        context.token,
        FAILED,
        output,
        as_text(summary[: limits.SUMMARY_CHARS_MAX]),
        as_text(reason[: limits.REASON_CHARS_MAX]),
        _runtime_ms(context),
        is_retryable,
        retry_after_ms,
    )


def cut(rows: list[ReportRow]) -> Iterator[list[ReportRow]]:
    """Splits outcomes into reports that each fit into one message."""
    part: list[ReportRow] = []
    size = 0
    for row in rows:
        weight = len(row.output) + limits.REASON_CHARS_MAX
        size += weight
        if part and size > limits.BATCH_BYTES_MAX:
            yield part
            part, size = [], weight
        part.append(row)
    if part:
        yield part


def _said(context: JobContext, error: AttemptFailedError) -> ReportRow:
    output = error.output if type(error.output) is bytes and len(error.output) <= limits.OUTPUT_BYTES_MAX else b""
    delay_ms = max(0, min(int(error.retry_after_ms), limits.DELAY_MS_MAX))
    return failure(
        context,
        str(error.reason),
        output=output,
        summary=str(error.summary),
        is_retryable=bool(error.is_retryable),
        retry_after_ms=delay_ms,
    )


def _runtime_ms(context: JobContext) -> int:
    if not context.started_s:
        return 0
    context.ended_s = time.monotonic()
    return min(int((context.ended_s - context.started_s) * 1_000), RUNTIME_MS_MAX)


def _end_fork(error: BaseException | None = None) -> NoReturn:
    """Ends a process that job code forked, where the job's code ends; only the parent reports the outcome.

    The process has a copy of the worker, and must not continue as a worker.
    """
    status = _exit_status(error)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(status)


def _exit_status(error: BaseException | None) -> int:
    """The exit status of a Python program that raised this exception."""
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        with suppress(Exception):
            traceback.print_exception(error)
        return 1
    return error.code & 0xFF if isinstance(error.code, int) else int(error.code is not None)
