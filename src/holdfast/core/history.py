"""Job histories, read from events: one entry for each change of each job.

Pure: an event contains all that is needed to read it, so no state is required.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import Any

import msgspec

from holdfast.core import events
from holdfast.core.events import AnyEvent
from holdfast.core.failure import traceback_of
from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED, RUNNING, name
from holdfast.core.model import Note, Result
from holdfast.core.outcomes import failure_text

SUBMITTED, GRANTED, RETRIED, FINISHED, LOST = "submitted", "granted", "to be retried", "finished", "lease lost"
#: The outcome of an attempt whose lease was revoked.
LOST_OUTCOME = "LOST"
_COUNTED, _NOT_COUNTED = "a loss", "not counted"


class Entry(msgspec.Struct, frozen=True):
    """One line of a job's history; `state` is the state after it, or empty if it did not change.

    `detail` is the traceback of a failed attempt. The history of a job includes it; the feed of all jobs omits it.
    """

    position: int
    at_ms: int
    job_id: str
    what: str
    state: str = ""
    worker: str = ""
    token: int = 0
    reason: str = ""
    detail: str = ""


class Attempt(msgspec.Struct, frozen=True):
    """One attempt of a job; `outcome` is DONE, FAILED, CANCELED, LOST (its lease was revoked) or RUNNING.

    Attempts are numbered from 1. A lease that was handed back without counting is not an attempt.
    """

    number: int
    worker: str
    token: int
    started_ms: int
    ended_ms: int
    outcome: str
    reason: str = ""
    detail: str = ""


def attempts(found: Iterable[Entry], count: int = 0) -> list[Attempt]:
    """The attempts in these entries of one job, oldest first.

    `count` is the job's number of attempts. If the history does not reach back to the first attempt, the last attempt
    still gets the right number.
    """
    told: dict[int, Attempt] = {}
    for entry in found:
        if entry.what == GRANTED:
            told[entry.token] = Attempt(0, entry.worker, entry.token, entry.at_ms, 0, name(RUNNING))
        elif entry.what in {RETRIED, FINISHED, LOST}:
            started = told.pop(entry.token, None)
            if entry.what == LOST and entry.reason.endswith(_NOT_COUNTED):
                continue
            told[entry.token] = Attempt(
                0,
                entry.worker,
                entry.token,
                started.started_ms if started else 0,
                entry.at_ms,
                _OUTCOMES.get(entry.what, entry.state),
                entry.reason,
                entry.detail,
            )
    first = max(count, len(told)) - len(told) + 1
    return [msgspec.structs.replace(one, number=number) for number, one in enumerate(told.values(), first)]


_OUTCOMES = {RETRIED: name(FAILED), LOST: LOST_OUTCOME}


def about(position: int, event: AnyEvent, job_id: str) -> Iterator[Entry]:
    """The entries of this event for one job, with details."""
    results = event.results if isinstance(event, events.Reported) else ()
    for entry, result in zip_longest(entries(position, event), results):
        if entry.job_id == job_id:
            yield _detailed(entry, result)


def _detailed(entry: Entry, result: Result | None) -> Entry:
    if result is None or result.state == DONE or not result.output:
        return entry
    return msgspec.structs.replace(entry, detail=traceback_of(result.output))


def entries(position: int, event: AnyEvent) -> Iterator[Entry]:
    """The entries of this event, for each job that it names."""
    return _READERS[type(event)](position, event)


def jobs_of(event: AnyEvent) -> Iterable[str]:
    """The ids of the jobs in this event's entries, without building the entries."""
    name_of = _NAMES.get(type(event))
    return name_of(event) if name_of is not None else ()


def _ticked_jobs(event: events.Ticked) -> Iterator[str]:
    if event.canceled:
        yield event.canceled
    if event.job is not None:
        yield event.job.id


def _reported_jobs(event: events.Reported) -> list[str]:
    return [*event.job_ids, *(row.job_id for row in event.refused)] if event.refused else event.job_ids


_NAMES: dict[type, Callable[[Any], Iterable[str]]] = {
    events.Created: lambda event: [row.id for row in event.jobs],
    events.Granted: lambda event: event.job_ids,
    events.Revoked: lambda event: event.job_ids,
    events.Reported: _reported_jobs,
    events.CancelAccepted: lambda event: (event.job_id,),
    events.QueuedCanceled: lambda event: event.job_ids,
    events.Noted: lambda event: [note.job_id for note in event.notes],
    events.Ticked: _ticked_jobs,
}


def _nothing(_position: int, _event: AnyEvent) -> Iterator[Entry]:
    """No entries.

    Starts, evictions, queue modes and changes of schedules name no job. An extension names leases, whose jobs were
    named when they were granted.
    """
    return iter(())


def _created(position: int, event: events.Created) -> Iterator[Entry]:
    for row in event.jobs:
        template = event.templates[row.template]
        due = f", due at {row.not_before_ms}" if row.not_before_ms > event.at_ms else ""
        reason = submission_text(template.type, template.queue, template.priority) + due
        yield Entry(position, event.at_ms, row.id, SUBMITTED, name(QUEUED), reason=reason)


def submission_text(type_: str, queue: str, priority: int) -> str:
    """A short description of a submitted job."""
    return f"type {type_}, queue {queue}, priority {priority}"


def loss_text(why: str, *, is_spent: bool) -> str:
    """The reason why a lease was revoked, and whether that counts as a loss."""
    return f"{why}, {_COUNTED if is_spent else _NOT_COUNTED}"


def _granted(position: int, event: events.Granted) -> Iterator[Entry]:
    for token, job_id in enumerate(event.job_ids, event.first_token):
        reason = f"for {event.lease_ms} ms"
        yield Entry(position, event.at_ms, job_id, GRANTED, name(RUNNING), event.worker, token, reason)


def _revoked(position: int, event: events.Revoked) -> Iterator[Entry]:
    for job_id, row in zip(event.job_ids, event.rows, strict=True):
        reason = loss_text(event.reason, is_spent=row.is_spent)
        yield Entry(position, event.at_ms, job_id, LOST, name(row.state), event.worker, row.token, reason)


def _reported(position: int, event: events.Reported) -> Iterator[Entry]:
    for job_id, result in zip(event.job_ids, event.results, strict=True):
        what = RETRIED if result.state == QUEUED else FINISHED
        reason = failure_text(result.failure_reason, result.summary)
        yield Entry(position, event.at_ms, job_id, what, name(result.state), event.worker, result.token, reason)
    for row in event.refused:
        yield Entry(position, event.at_ms, row.job_id, "report refused", "", event.worker, row.token, row.reason)


def _canceled(position: int, event: events.CancelAccepted) -> Iterator[Entry]:
    what = "cancel requested" if event.state == RUNNING else "canceled"
    yield Entry(position, event.at_ms, event.job_id, what, name(event.state), reason=event.reason)


def _queued_canceled(position: int, event: events.QueuedCanceled) -> Iterator[Entry]:
    for job_id in event.job_ids:
        yield Entry(position, event.at_ms, job_id, "canceled", name(CANCELED), reason=event.reason)


def _noted(position: int, event: events.Noted) -> Iterator[Entry]:
    """One entry for progress, and one for each log line."""
    for note in event.notes:
        said = [("progress", _progress(note))] if note.permille >= 0 or note.message else []
        for what, reason in [*said, *(("log", line) for line in note.lines)]:
            yield Entry(position, event.at_ms, note.job_id, what, "", event.worker, note.token, reason)


def _progress(note: Note) -> str:
    share = f"{note.permille / 10:g} %" if note.permille >= 0 else ""
    return ": ".join(part for part in (share, note.message) if part)


def _ticked(position: int, event: events.Ticked) -> Iterator[Entry]:
    if event.canceled:
        what = "cancel requested" if event.canceled_state == RUNNING else "canceled"
        reason = f"its schedule {event.name} made the next job"
        yield Entry(position, event.at_ms, event.canceled, what, name(event.canceled_state), reason=reason)
    if event.job is not None:
        assert event.template is not None
        for entry in _created(position, events.Created(event.at_ms, [event.template], [event.job])):
            yield msgspec.structs.replace(entry, reason=f"{entry.reason}, {event.outcome} by schedule {event.name}")


_READERS: dict[type, Callable[[int, Any], Iterator[Entry]]] = {
    events.Started: _nothing,
    events.Extended: _nothing,
    events.Evicted: _nothing,
    events.Retired: _nothing,
    events.QueueModeSet: _nothing,
    events.ScheduleSet: _nothing,
    events.ScheduleDeleted: _nothing,
    events.SchedulePaused: _nothing,
    events.Ticked: _ticked,
    events.Created: _created,
    events.Granted: _granted,
    events.Revoked: _revoked,
    events.Reported: _reported,
    events.CancelAccepted: _canceled,
    events.QueuedCanceled: _queued_canceled,
    events.Noted: _noted,
}
