"""A job's history, built from its record, its result and its stored earlier attempts."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from holdfast.core.failure import traceback_of
from holdfast.core.history import FINISHED, GRANTED, LOST, RETRIED, SUBMITTED, Entry, loss_text, submission_text
from holdfast.core.lifecycle import CANCELED, DONE, QUEUED, RUNNING, name
from holdfast.core.model import Result
from holdfast.core.outcomes import failure_text
from holdfast.topologies.zookeeper.backend.records import Execution, Record


def history_of(record: Record, executions: Sequence[Execution], result: Result | None) -> list[Entry]:
    """Returns the entries, oldest first; `result` is given for a job that has ended."""
    found = _entries(record, executions, result)
    return [replace(entry, position=position) for position, entry in enumerate(found, start=1)]


def _entries(record: Record, executions: Sequence[Execution], result: Result | None) -> Iterator[Entry]:
    template = record.template
    reason = submission_text(template.type, template.queue, template.priority)
    yield Entry(0, record.created_ms, record.id, SUBMITTED, name(QUEUED), reason=reason)
    cancel = _cancel_requested(record)
    for execution in executions:
        yield _granted(record, execution.token, execution.worker, execution.started_ms)
        if cancel is not None and cancel.at_ms <= execution.ended_ms:
            yield cancel
            cancel = None
        yield _ended(record, execution)
    is_attempt = record.state == RUNNING or record.is_reported or bool(record.ended_by)
    if is_attempt and all(execution.token != record.token for execution in executions):
        yield _granted(record, record.token, record.worker or record.ended_by, record.started_ms)
        if cancel is not None:
            yield cancel
    if result is not None:
        yield _last(record, result, is_attempt=is_attempt)


def _granted(record: Record, token: int, worker: str, at_ms: int) -> Entry:
    return Entry(0, at_ms, record.id, GRANTED, name(RUNNING), worker, token)


def _cancel_requested(record: Record) -> Entry | None:
    if not record.cancel_ms:
        return None
    return Entry(0, record.cancel_ms, record.id, "cancel requested", name(RUNNING), reason=record.cancel_reason)


def _ended(record: Record, execution: Execution) -> Entry:
    """Returns the end of an attempt that did not end the job."""
    what, reason = (
        (RETRIED, execution.reason)
        if execution.is_failure
        else (LOST, loss_text(execution.reason, is_spent=execution.is_spent))
    )
    worker, token = execution.worker, execution.token
    return Entry(0, execution.ended_ms, record.id, what, name(QUEUED), worker, token, reason, execution.detail)


def _last(record: Record, result: Result, *, is_attempt: bool) -> Entry:
    """Returns the end of the job: by its last attempt, by the loss of that attempt, or by a cancel while it waited."""
    state = name(record.state)
    if not is_attempt:
        what = "canceled" if record.state == CANCELED else FINISHED
        return Entry(0, record.finished_ms, record.id, what, state, reason=result.summary)
    what = FINISHED if record.is_reported else LOST
    reason = failure_text(result.failure_reason, result.summary)
    detail = "" if record.state == DONE else traceback_of(result.output)
    return Entry(0, record.finished_ms, record.id, what, state, record.ended_by, record.token, reason, detail)
