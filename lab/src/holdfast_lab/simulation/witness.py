"""The durable log, kept apart from the program under test, and interpreted twice.

Every frame that the journal reports as durable is applied to a *shadow* (the core's own replay) and fed to the
independent *model*. At each recovery the journal must hold exactly the witnessed frames, and possibly the one frame
that was being written; then the recovered state, the shadow and the model must be fully equal.

Invariant: a response for a position leaves only if that position is witnessed here.
"""

from collections.abc import Callable
from typing import Any

from holdfast.core import events, image
from holdfast.core.events import (
    AnyEvent,
    Created,
    Extended,
    Granted,
    Noted,
    QueueModeSet,
    Reported,
    Retired,
    Revoked,
    ScheduleDeleted,
    ScheduleSet,
    Ticked,
)
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import FAILED, QUEUED
from holdfast.core.model import JobRecord, NewJob, QueueMode, ScheduleSpec, Template
from holdfast.journal import port as journal_port
from holdfast.journal.file import FileJournal
from holdfast_lab.simulation.ledger_view import view_ledger
from holdfast_lab.simulation.model import Model
from holdfast_lab.simulation.swarm import SwarmSettings
from holdfast_lab.simulation.violation import require

Frame = tuple[bytes, int, int]


class Grant:
    """A lease according to the log."""

    __slots__ = ("job_id", "position", "worker")

    def __init__(self, job_id: str, worker: str, position: int) -> None:
        self.job_id = job_id
        self.worker = worker
        self.position = position


class CreatedJob:
    """A job as it was created; an id made by a client may be reused once the first job is removed."""

    __slots__ = ("job", "position", "template")

    def __init__(self, template: Template, job: NewJob, position: int) -> None:
        self.template = template
        self.job = job
        self.position = position

    def is_same(self, template: Template, job: NewJob) -> bool:
        """Whether a submit has the same content."""
        return (self.template, self.job.payload, self.job.extra) == (template, job.payload, job.extra)


class LogWitness:
    """The durable log so far, and indexes of it."""

    def __init__(self, settings: SwarmSettings) -> None:
        self._settings = settings
        config = LedgerConfig(aging_ms=settings.aging_ms)
        self.shadow = Ledger(config)
        self.model = Model(aging_ms=settings.aging_ms)
        self.position = 0
        self.epoch = 0
        #: Frames by their first position.
        self._frames: dict[int, Frame] = {}
        self._pending: Frame | None = None
        # Events by the object that they concern.
        self.lives: dict[str, list[CreatedJob]] = {}
        #: The modes of each queue, with the positions at which they began.
        self.modes: dict[str, list[tuple[int, QueueMode]]] = {}
        #: Each schedule as it was set, or None where it was deleted, with the positions.
        self.schedules: dict[str, list[tuple[int, ScheduleSpec | None]]] = {}
        self.notes: set[tuple[int, str]] = set()
        self.grants: dict[int, Grant] = {}
        self.grants_of: dict[str, int] = {}
        self.tokens_of: dict[tuple[str, str], list[int]] = {}
        self.outcomes: dict[int, int] = {}
        self.refused: dict[tuple[str, int], str] = {}
        self.kinds: dict[str, int] = {}
        self._lasting = [*settings.lasting_workers, *settings.runtime_worker_names]
        #: Called with every durable event, after it was indexed here and before the shadow applies it.
        self.listeners: list[Callable[[AnyEvent], None]] = []
        self._notes: dict[type, Callable[[Any, int], None]] = {
            Created: self._note_created,
            Granted: self._note_granted,
            QueueModeSet: self._note_mode,
            Noted: self._note_words,
            Reported: self._note_reported,
            Retired: self._check_retired,
            Extended: self._check_extended,
            Revoked: self._check_revoked,
        }

    # -- notifications of the storage

    def writing(self, body: bytes, count: int, digest: int) -> None:
        """Notes a frame that is about to be written."""
        require(self._pending is None, "a frame was written before the one before it was durable")
        self._pending = (body, count, digest)

    def wrote(self, body: bytes, count: int, digest: int, end_position: int) -> None:
        """Takes in a durable frame."""
        require(self._pending == (body, count, digest), "another frame became durable than was being written")
        self._pending = None
        self._take(body, count, digest)
        require(end_position == self.position, f"the journal ends at {end_position}, the log at {self.position}")

    def take(self, body: bytes, count: int, digest: int) -> None:
        """Takes in a frame that can not be lost any more; for a log that several processes write in turn."""
        self._take(body, count, digest)

    def _take(self, body: bytes, count: int, digest: int) -> None:
        first = self.position + 1
        self._frames[first] = (body, count, digest)
        self.model.feed(body, first)
        for event in events.decode(body):
            self._check_room(event)
            self._note(event, self.shadow.position + 1)
            self._note_schedule(event, self.shadow.position + 1)
            for listener in self.listeners:
                listener(event)
            before = self.shadow.digest
            self.shadow.apply(event)
            if type(event) is Noted:
                require(self.shadow.digest == before, f"a note of {event.worker} changed the state")
        self.position = self.shadow.position
        require(
            self.position == first + count - 1,
            f"a frame at {first} of {count} events ends at {self.position}",
        )
        require(self.shadow.digest == digest, f"replay up to {self.position} gives another digest than was live")

    def _check_room(self, event: AnyEvent) -> None:
        """Checks that no job is created while held jobs exceed the memory limit."""
        if type(event) is Created or (type(event) is Ticked and event.job is not None):
            held, limit = self.shadow.state.bytes_held, self._settings.memory_bytes
            require(not limit or held <= limit, f"a job was taken while {held} bytes were held, and may be {limit}")

    def _note(self, event: AnyEvent, position: int) -> None:
        kind = type(event).__name__
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if type(event) in self._notes:
            self._notes[type(event)](event, position)

    def _note_created(self, event: Created, position: int) -> None:
        for job in event.jobs:
            self.lives.setdefault(job.id, []).append(CreatedJob(event.templates[job.template], job, position))

    def _note_reported(self, event: Reported, _: int) -> None:
        for result in event.results:
            self.outcomes[result.token] = result.state
        for row in event.refused:
            self.refused[row.job_id, row.token] = row.reason

    def _note_mode(self, event: QueueModeSet, position: int) -> None:
        self.modes.setdefault(event.queue, []).append((position, event.mode))

    def _note_words(self, event: Noted, _: int) -> None:
        self.notes.update((note.token, note.message) for note in event.notes)

    def _note_schedule(self, event: AnyEvent, position: int) -> None:
        if type(event) is ScheduleSet:
            self.schedules.setdefault(event.spec.name, []).append((position, event.spec))
        elif type(event) is ScheduleDeleted:
            self.schedules[event.name].append((position, None))
        elif type(event) is Ticked:
            kind = f"tick {event.outcome}"
            self.kinds[kind] = self.kinds.get(kind, 0) + 1
            if event.job is not None:
                assert event.template is not None
                self.lives.setdefault(event.job.id, []).append(CreatedJob(event.template, event.job, position))

    def _note_granted(self, event: Granted, position: int) -> None:
        for token, job_id in enumerate(event.job_ids, event.first_token):
            require(token not in self.grants, f"token {token} was granted twice")
            self.grants[token] = Grant(job_id, event.worker, position)
            self.grants_of[job_id] = self.grants_of.get(job_id, 0) + 1
            self.tokens_of.setdefault((job_id, event.worker), []).append(token)

    def _check_extended(self, event: Extended, _: int) -> None:
        """Checks that a heartbeat is in the log only if the next start depends on it."""
        leases = [self.shadow.state.leases[token] for token in event.tokens]
        idle = [lease.token for lease in leases if not lease.restarts and lease.lease_ms == event.lease_ms]
        require(not idle, f"a heartbeat for the leases {idle} is in the log, and nothing depends on it")

    def _check_revoked(self, event: Revoked, _: int) -> None:
        """Checks that a worker that can reconnect loses no lease, however often connections and servers end.

        Local workers die with their server, and a polling worker may never receive a lease that was granted to it. A
        lease that more than one start found without a heartbeat may expire before its worker is back.
        """
        if event.reason not in ("disconnected", "expired") or not self._settings.is_gentle:
            return
        leases = [self.shadow.state.leases[row.token] for row in event.rows]
        lost = [lease.token for lease in leases if lease.worker in self._lasting and lease.restarts <= 1]
        require(not lost, f"the leases {lost} were lost ({event.reason}), and no fault explains that")

    def _check_retired(self, event: Retired, _: int) -> None:
        """Checks that each removed job was too old for its state, or exceeded the limit of jobs or bytes."""
        settings, finished = self._settings, self.shadow.state.finished
        others = [job for job in finished if job.state != FAILED]
        failed = [job for job in finished if job.state == FAILED]
        is_possible = 0 <= event.others <= len(others) and 0 <= event.failed <= len(failed)
        require(is_possible and event.others + event.failed > 0, "more jobs were forgotten than have finished")
        young = [job for job in others[: event.others] if job.finished_ms + settings.retain_ms > event.at_ms]
        young_failed = [
            job for job in failed[: event.failed] if job.finished_ms + settings.retain_failed_ms > event.at_ms
        ]
        if not young and not young_failed:
            return
        kept = others[event.others :] + failed[event.failed :]
        last_bytes = max(job.bytes_held for job in (*young[-1:], *young_failed[-1:]))
        is_over = len(kept) + 1 > settings.retain_jobs
        is_over |= sum(job.bytes_held for job in kept) + last_bytes > settings.retain_bytes
        require(is_over, f"job {(young or young_failed)[-1].id} was forgotten while it was to be retained")
        if young_failed and others[event.others :]:
            self._check_flood(failed[event.failed - 1 :])

    def _check_flood(self, failed: list[JobRecord]) -> None:
        """Checks that a failed job is removed before others only if failed jobs took more than half of the limit."""
        is_flood = 2 * len(failed) > self._settings.retain_jobs
        is_flood |= 2 * sum(job.bytes_held for job in failed) > self._settings.retain_bytes
        require(is_flood, f"failed job {failed[0].id} was forgotten before jobs that did not fail")

    # -- recovery

    def recovered(self, journal: FileJournal, ledger: Ledger) -> None:
        """Checks that the journal holds the witnessed frames, and that the state follows from them."""
        require(journal.epoch > self.epoch, f"epoch {journal.epoch} follows epoch {self.epoch}")
        self.epoch = journal.epoch
        first = journal.first_position
        for frame in journal.replay(first - 1):
            self._compare_frame(frame.first_position, (frame.body, frame.count, frame.digest or 0))
        self._pending = None
        require(
            ledger.position == self.position,
            f"recovery ended at position {ledger.position}, but {self.position} was durable",
        )
        self.compare(ledger)
        full = image.full_digest(ledger)
        require(full == image.full_digest(self.shadow), "snapshot and tail give another state than the whole log")

    def _compare_frame(self, first: int, found: Frame) -> None:
        if first <= self.position:
            require(self._frames.get(first) == found, f"the frame at {first} is not the one that was written")
            return
        require(first == self.position + 1, f"the journal continues at {first} after {self.position}")
        require(self._pending == found, f"the frame at {first} was never written")
        self._pending = None
        self._take(*found)

    def compare(self, ledger: Ledger) -> None:
        """Checks that a ledger at this position fully equals the model."""
        require(ledger.position == self.position, "only equal positions can be compared")
        self.model.compare(view_ledger(ledger))
        ledger.state.audit()

    def check_frame(self, frame: journal_port.Frame) -> None:
        """Checks that a reader beside the coordinator sees durable frames as they were written."""
        found = (frame.body, frame.count, frame.digest or 0)
        known = self._frames.get(frame.first_position)
        require(known == found, f"a reader saw another frame at {frame.first_position} than was written")

    # -- queries

    @property
    def backlog(self) -> int:
        """The number of jobs that have not ended."""
        return len(self.model.jobs) - len(self.model.finished)

    def is_kept(self, job_id: str) -> bool:
        """Whether the log has created the job and not removed it."""
        return job_id in self.model.jobs

    def is_known(self, job_id: str) -> bool:
        """Whether the log ever created the job."""
        return job_id in self.lives

    def last_life(self, job_id: str) -> CreatedJob:
        """Returns the last job that was created under this id."""
        return self.lives[job_id][-1]

    def is_single(self, job_id: str) -> bool:
        """Whether only one job was ever created under this id, so that late responses cannot be about another one."""
        return len(self.lives.get(job_id, ())) <= 1

    def mode_at(self, queue: str, position: int) -> QueueMode:
        """Returns the mode of a queue after this position."""
        modes = [mode for since, mode in self.modes.get(queue, ()) if since <= position]
        return modes[-1] if modes else QueueMode.OPEN

    def has_outcome(self, token: int) -> bool:
        """Whether a report under this token was accepted."""
        return token in self.outcomes

    def is_requeued(self, token: int) -> bool:
        """Whether the report under this token led to another attempt."""
        return self.outcomes.get(token) == QUEUED
