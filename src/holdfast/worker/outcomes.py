"""How an attempt ended, as the backend is told: from what the handler returned or raised.

Whatever job code does is an outcome of its attempt and never the end of the worker: it may return anything, raise
anything, and have no words that can be shown.
"""

import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import msgspec

from holdfast import limits
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import CANCELED, DONE, FAILED
from holdfast.core.validation import as_text
from holdfast.worker.context import JobContext, JobTimeoutError
from holdfast.worker.handlers import AttemptFailedError

#: The end of a traceback says most; this much of it is kept.
TRACEBACK_CHARS_MAX = 16 * 1_024
_OURS = str(Path(__file__).parents[1])


def succeeded(context: JobContext, output: object) -> ReportRow:
    """The handler returned; its output is checked before anything is sent."""
    assignment = context.assignment
    context.ended_s = ended_s = time.monotonic()
    if type(output) is not bytes:
        return failed(context, AttemptFailedError("OUTPUT_NOT_BYTES", is_retryable=False))
    if len(output) > limits.OUTPUT_BYTES_MAX:
        return failed(context, AttemptFailedError("OUTPUT_TOO_LARGE", is_retryable=False))
    return ReportRow(
        assignment.job_id, assignment.token, DONE, output, "", "", int((ended_s - context.started_s) * 1_000)
    )


def failed(context: JobContext, error: BaseException) -> ReportRow:
    """The handler raised. Whatever it raised after it was told to end, that is why it ended."""
    if context.interrupt is not None:
        return interrupted(context)
    if isinstance(error, AttemptFailedError):
        return _said(context, error)
    return failure(context, f"{type(error).__name__}: {_words(error)}", output=_described(error))


def interrupted(context: JobContext) -> ReportRow:
    """The attempt was told to end, and did or was made to."""
    if context.interrupt is JobTimeoutError:
        return failure(context, "TIMEOUT")
    return ReportRow(context.job_id, context.token, CANCELED, runtime_ms=_runtime_ms(context))


def failure(
    context: JobContext, reason: str, *, output: bytes = b"", is_retryable: bool = True, retry_after_ms: int = 0
) -> ReportRow:
    """A failure, with its reason no longer than is kept, and text."""
    return ReportRow(
        context.job_id,
        context.token,
        FAILED,
        output,
        "",
        as_text(reason[: limits.REASON_CHARS_MAX]),
        _runtime_ms(context),
        is_retryable,
        retry_after_ms,
    )


def cut(rows: list[ReportRow]) -> Iterator[list[ReportRow]]:
    """The outcomes in reports that each fit into one message."""
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
    reason = str(error.reason)
    return failure(context, reason, output=output, is_retryable=bool(error.is_retryable), retry_after_ms=delay_ms)


def _runtime_ms(context: JobContext) -> int:
    if not context.started_s:
        return 0
    context.ended_s = time.monotonic()
    return int((context.ended_s - context.started_s) * 1_000)


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - not even its words need be sound
        return "it cannot be shown"


def _described(error: BaseException) -> bytes:
    """The output of a job that raised, for whoever asks for its result."""
    try:
        described = {
            "type": _name(type(error)),
            "message": as_text(_words(error)[:TRACEBACK_CHARS_MAX]),
            "traceback": as_text(_traceback(error)[-TRACEBACK_CHARS_MAX:]),
        }
        return msgspec.json.encode(described)
    except BaseException:  # noqa: BLE001 - no memory, or a class made to be a nuisance: the reason must do
        return b""


def _name(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _traceback(error: BaseException) -> str:
    """What Python would print, without the frames that are Holdfast's own."""
    shown = traceback.TracebackException.from_exception(error, limit=-100, compact=True)
    _leave_out(shown)
    return "".join(shown.format())


def _leave_out(shown: traceback.TracebackException | None) -> None:
    while shown is not None:
        kept = [frame for frame in shown.stack if not frame.filename.startswith(_OURS)]
        shown.stack = traceback.StackSummary.from_list(kept)
        shown = shown.__cause__ or shown.__context__
