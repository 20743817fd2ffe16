"""A job's history, read from its row and from the rows of its attempts.

The pipeline has no global sequence of events, so a position is the index of an entry in its job's own history.
"""

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.core.history import FINISHED, GRANTED, LOST, RETRIED, SUBMITTED, Entry, submission_text
from holdfast.core.lifecycle import CANCELED, QUEUED, RUNNING, TERMINAL, name
from holdfast.core.outcomes import failure_text
from holdfast.topologies.pipeline.postgres.row_values import Row


class _Job(msgspec.Struct, frozen=True):
    """The columns of `jobs`, and of its result."""

    id: str
    type: str
    queue: str
    priority: int
    created_ms: int
    state: int
    token: int
    worker: str
    started_ms: int
    finished_ms: int
    cancel_ms: int
    cancel_reason: str
    #: The summary of the job's result.
    end_summary: str


class _Execution(msgspec.Struct, frozen=True):
    """The columns of `executions`."""

    token: int
    worker: str
    started_ms: int
    ended_ms: int
    outcome: int
    reason: str
    summary: str
    detail: str
    loss: str


_JOB_END = len(_Job.__struct_fields__)


def history_of(rows: Sequence[Row]) -> list[Entry]:
    """Returns the entries, oldest first, from the rows of the statement `history`: the job with each attempt."""
    job = _Job(*rows[0][:_JOB_END])
    executions = [_Execution(*row[_JOB_END:]) for row in rows if row[_JOB_END] is not None]
    return [
        msgspec.structs.replace(entry, position=position)
        for position, entry in enumerate(_entries(job, executions), start=1)
    ]


def _entries(job: _Job, executions: Sequence[_Execution]) -> Iterator[Entry]:
    reason = submission_text(job.type, job.queue, job.priority)
    yield Entry(0, job.created_ms, job.id, SUBMITTED, name(QUEUED), reason=reason)
    is_asked = not job.cancel_ms
    for execution in executions:
        yield _granted(job, execution.token, execution.worker, execution.started_ms)
        if not is_asked and job.cancel_ms <= execution.ended_ms:
            is_asked = True
            yield _cancel_requested(job)
        yield _ended(job, execution)
    if job.state == RUNNING:
        yield _granted(job, job.token, job.worker, job.started_ms)
        if not is_asked:
            yield _cancel_requested(job)
    if job.state == CANCELED and not (executions and executions[-1].outcome in TERMINAL):
        yield Entry(0, job.finished_ms, job.id, "canceled", name(CANCELED), reason=job.end_summary)


def _granted(job: _Job, token: int, worker: str, at_ms: int) -> Entry:
    return Entry(0, at_ms, job.id, GRANTED, name(RUNNING), worker, token)


def _cancel_requested(job: _Job) -> Entry:
    return Entry(0, job.cancel_ms, job.id, "cancel requested", name(RUNNING), reason=job.cancel_reason)


def _ended(job: _Job, execution: _Execution) -> Entry:
    is_end = execution.outcome in TERMINAL
    if execution.loss:
        what, reason = LOST, execution.loss
    else:
        what = FINISHED if is_end else RETRIED
        reason = failure_text(execution.reason, job.end_summary if is_end else execution.summary)
    worker, token, state = execution.worker, execution.token, name(execution.outcome)
    return Entry(0, execution.ended_ms, job.id, what, state, worker, token, reason, execution.detail)
