"""Logs every durable state transition, from the coordinator's events or from a store's commits.

The core never logs; this observer reads the changes of an event. Lines are collected for some milliseconds and written
together: a write for every frame would cost the coordinator more than the lines do. Refused reports are logged too, so
that a late or stale result can be explained from the logs alone.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator

import msgspec

from holdfast.core.events import AnyEvent, CancelAccepted, Evicted, Granted, QueuedCanceled, Reported, Retired, Revoked
from holdfast.core.ledger import Ledger
from holdfast.core.lifecycle import RUNNING, name
from holdfast.core.model import JobRecord
from holdfast.core.state_change import LogChanges, StateChange
from holdfast.observe.log_setup import Level, LineWriter, RepeatedLine

#: How long lines are collected before they are written together.
_COLLECT_MS = 50
_LEVELS_OF_MOVES = ("debug", "info")


class TransitionLine(msgspec.Struct, frozen=True, gc=False):
    """One change of state."""

    ts_ms: int
    service: str
    job_id: str
    worker_id: str
    old_state: str
    new_state: str
    attempt: int
    priority: int
    #: The position in the journal; 0 if the backend has no journal.
    position: int
    reason: str = ""
    level: str = "info"
    method: str = ""
    event: str = "transition"
    message: str = ""


class RefusedLine(msgspec.Struct, frozen=True, gc=False):
    """One report that changed nothing."""

    ts_ms: int
    service: str
    job_id: str
    worker_id: str
    token: int
    position: int
    reason: str
    level: str = "warning"
    method: str = ""
    event: str = "report_refused"
    message: str = "a late, stale or foreign report was ignored"


Line = RepeatedLine | RefusedLine


def transition_lines(writer: LineWriter, service: str, level: Level) -> LogChanges | None:
    """Returns a function that logs state changes; None if the level excludes them, so that they are not created."""
    if level not in _LEVELS_OF_MOVES:
        return None

    def write(changes: Iterable[StateChange]) -> None:
        writer.write([RepeatedLine(_line(change, service), change.job_ids) for change in changes])

    return write


def _line(change: StateChange, service: str) -> TransitionLine:
    return TransitionLine(
        change.at_ms,
        service,
        "",
        change.worker,
        name(change.old),
        name(change.new),
        change.attempt,
        change.priority,
        0,
        change.reason,
        event=_event(change.old, change.new),
    )


def _event(old: int, new: int) -> str:
    return "transition" if old != new else "cancel_requested"


class TransitionLog:
    """An observer of the coordinator that logs transitions. `later` schedules a call after some milliseconds.

    Lines below `level` are not written.
    """

    def __init__(
        self,
        writer: LineWriter,
        service: str,
        later: Callable[[int, Callable[[], None]], None],
        level: Level = "info",
    ) -> None:
        self._writer = writer
        self._service = service
        self._later = later
        self._says_moves = level in _LEVELS_OF_MOVES
        self._says_refusals = level != "error"
        self._lines: deque[tuple[int, Line]] = deque()
        self._durable = 0
        self._is_write_due = False

    def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
        """Creates the lines of an event, while its changes are still available."""
        if isinstance(event, Evicted | Retired):
            return
        worker, reason = _who_and_why(event)
        at_ms, service = event.at_ms, self._service
        if self._says_moves:
            for (before, state, tries, priority), ids in _alike(ledger.state.moves):
                old, new = name(before), name(state)
                line = TransitionLine(
                    at_ms, service, "", worker, old, new, tries, priority, position, reason, event=_event(before, state)
                )
                self._lines.append((position, RepeatedLine(line, ids)))
        if isinstance(event, Reported) and self._says_refusals:
            for row in event.refused:
                refused = RefusedLine(at_ms, service, row.job_id, worker, row.token, position, row.reason)
                self._lines.append((position, refused))

    def durable(self, position: int) -> None:
        """Schedules the write of the lines whose events are durable."""
        self._durable = position
        if self._lines and not self._is_write_due:
            self._is_write_due = True
            self._later(_COLLECT_MS, self.flush)

    def flush(self) -> None:
        """Writes every line whose event is durable."""
        self._is_write_due = False
        lines, due = self._lines, []
        while lines and lines[0][0] <= self._durable:
            due.append(lines.popleft()[1])
        if due:
            self._writer.write(due)

    def bug(self, command: object, error: Exception) -> None:
        """Does nothing: a bug is not a transition."""


def _alike(moves: list[tuple[JobRecord, int]]) -> Iterator[tuple[tuple[int, int, int, int], list[str]]]:
    """Groups the jobs of one event whose lines differ only in the id, in order; most events change all jobs alike."""
    last: tuple[int, int, int, int] | None = None
    ids: list[str] = []
    for job, before in moves:
        state, result = job.state, job.result
        # `Job.attempts` inlined, because this runs for every change of every job.
        tries = job.failures + job.losses + (state == RUNNING or (result is not None and result.token != 0))
        how = (before, state, tries, job.template.priority)
        if how != last:
            if last is not None:
                yield last, ids
            last, ids = how, []
        ids.append(job.id)
    if last is not None:
        yield last, ids


def _who_and_why(event: AnyEvent) -> tuple[str, str]:
    if isinstance(event, Granted | Reported):
        return event.worker, ""
    if isinstance(event, Revoked):
        return event.worker, event.reason
    if isinstance(event, CancelAccepted | QueuedCanceled):
        return "", event.reason
    return "", ""
