"""An independent model: a naive interpretation of the event stream that shares no code with the core.

The model takes the bodies that the journal stores, keeps plain values, and checks for every event whether it was
allowed to happen. It knows the guarantees, not the causes: the requests, the types that a worker knows, and served time
are not in the stream, so nothing is concluded from them.

It checks: legal transitions only; tokens only grow; one live lease per job; a grant takes QUEUED, due jobs that are not
canceled, and of each lane (queue, route, priority) exactly the oldest ones; results come under the live lease of the
reporting worker; both budgets hold; terminal is final; refusals of reports are correct and change nothing; a job with a
requested cancel is never queued or granted again; keys are unique among kept jobs; at most one unfinished job per type
and unique key; a paused queue grants nothing, a draining one takes no new jobs; notes come under the live lease of
their worker, cut to size, and change nothing; jobs are removed in the order in which they finished; ids are unique
among kept jobs; schedules tick as `model_schedules` requires; a start renews a lease once, until a heartbeat of its
worker; log time and epochs never go back. After a violation the model is no longer meaningful.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast_lab.simulation.model_schedules import ModelSchedules

QUEUED, RUNNING, DONE, FAILED, CANCELED = 1, 2, 3, 4, 5
TERMINAL = frozenset({DONE, FAILED, CANCELED})
NAMES = {QUEUED: "QUEUED", RUNNING: "RUNNING", DONE: "DONE", FAILED: "FAILED", CANCELED: "CANCELED"}
MOVES = frozenset(
    {
        (QUEUED, RUNNING),
        (QUEUED, CANCELED),
        (RUNNING, QUEUED),
        (RUNNING, DONE),
        (RUNNING, FAILED),
        (RUNNING, CANCELED),
    }
)
# Beyond this number of grants that ended without failure or loss, returning a job counts as a loss.
UNSPENT_GRANTS_MAX = 20
REVOKE_REASONS = frozenset({"expired", "disconnected", "not-running", "released"})
REFUSE_REASONS = frozenset({"UNKNOWN_JOB", "NOT_THE_HOLDER", "LEASE_EXPIRED", "ALREADY_FINISHED", "STALE_TOKEN"})
OPEN, PAUSED, DRAINING = 1, 2, 3
WORKER_LOST, OUTPUT_TOO_LARGE = "WORKER_LOST", "OUTPUT_TOO_LARGE"

_BATCH_JOBS_MAX = 1_000
_PAYLOAD_BYTES_MAX = 1024 * 1024
_OUTPUT_BYTES_MAX = 256 * 1024
_TEXT_CHARS_MAX = 1_024
_NOTE_LINES_MAX = 100
_PERMILLE_MAX = 1_000
_QUEUES_CLOSED_MAX = 1_000
_YEAR_MS = 366 * 24 * 60 * 60 * 1_000
_ATTEMPTS_MAX = _LOSSES_MAX = 100
_PRIORITY_MAX = 9

LaneKey = tuple[str, str, int]
#: token, state, output, summary, failure_reason, runtime_ms
ResultRow = tuple[int, int, bytes, str, str, int]


class ModelViolation(AssertionError):  # noqa: N818 - it reports a broken promise, not a failed call
    """The stream contains an event that must never happen."""


@dataclass(slots=True)
class ModelJob:
    """The state of one job according to the stream."""

    id: str
    number: int
    type: str
    lane: LaneKey
    max_attempts: int
    max_losses: int
    payload: bytes
    request_id: str
    unique_key: str
    created_ms: int
    not_before_ms: int
    state: int = QUEUED
    token: int = 0
    attempts: int = 0
    failures: int = 0
    losses: int = 0
    started_ms: int = 0
    finished_ms: int = 0
    cancel_requested: bool = False
    result: ResultRow | None = None

    def view(self) -> dict[str, object]:
        """Returns the job as plain values, in the shape that `compare` expects."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class ModelLease:
    """One live lease."""

    token: int
    job_id: str
    worker: str
    granted_ms: int
    lease_ms: int
    expires_ms: int
    #: Starts since the last heartbeat of its worker, and the server process that it ends with.
    restarts: int = 0
    host: str = ""

    def view(self) -> dict[str, object]:
        """Returns the lease as plain values."""
        return {name: getattr(self, name) for name in self.__slots__}


class Model:
    """The state after a prefix of the stream; with `aging_ms`, order between priorities is checked too."""

    def __init__(self, *, aging_ms: int | None = None, dedup_keys_max: int = 0) -> None:
        self.position = 0
        self.jobs: dict[str, ModelJob] = {}
        self.leases: dict[int, ModelLease] = {}
        self.keys: dict[str, str] = {}
        #: Ids of unfinished jobs, by type and unique key.
        self.unique: dict[tuple[str, str], str] = {}
        #: Mode, reason and start of each queue that is not open.
        self.modes: dict[str, tuple[int, str, int]] = {}
        self.finished: deque[str] = deque()
        self.schedules = ModelSchedules(self._require)
        self.last_ms = 0
        self.last_token = 0
        self.last_number = 0
        self.last_epoch = 0
        self.process = ""
        self._aging_ms = aging_ms
        self._keys_max = dedup_keys_max
        self._lanes: dict[LaneKey, list[tuple[int, ModelJob]]] = {}
        self._delayed: list[tuple[int, int, ModelJob]] = []
        self._feeds: dict[int, Callable[[int, list[Any]], None]] = {
            1: self._started,
            2: self._created,
            3: self._granted,
            4: self._extended,
            5: self._revoked,
            6: self._reported,
            7: self._cancel_accepted,
            8: self._evicted,
            9: self._queue_mode_set,
            10: self._queued_canceled,
            11: self._noted,
            12: lambda at_ms, fields: self.schedules.set(at_ms, fields[0], fields[1]),
            13: lambda _, fields: self.schedules.delete(fields[0]),
            14: lambda at_ms, fields: self.schedules.pause(at_ms, fields[0], fields[2], is_paused=fields[1]),
            15: self._ticked,
            16: self._retired,
        }

    # -- feeding

    def feed(self, body: bytes, first_position: int) -> None:
        """Checks and takes in one body; its first event has this position, counted from 1."""
        self._require(
            first_position == self.position + 1, f"the stream continues at {first_position}, not where it ended"
        )
        for tag, at_ms, *fields in msgspec.msgpack.decode(body):
            self.position += 1
            self._require(at_ms >= self.last_ms, f"log time went back from {self.last_ms} to {at_ms}")
            self._require(tag in self._feeds, f"no event has the tag {tag}")
            self.last_ms = at_ms
            self._feeds[tag](at_ms, fields)

    def _require(self, holds: bool, sentence: str) -> None:  # noqa: FBT001 - reads as an assertion
        if not holds:
            raise self._violation(sentence)

    def _violation(self, sentence: str) -> ModelViolation:
        return ModelViolation(f"at position {self.position}: {sentence}")

    def _started(self, at_ms: int, fields: list[Any]) -> None:
        epoch, process, *_ = [*fields, ""]
        self._require(epoch > self.last_epoch, f"epoch {epoch} follows epoch {self.last_epoch}")
        self.last_epoch, self.process = epoch, process
        for lease in self.leases.values():
            lease.expires_ms = at_ms + self.renewal_ms(lease, at_ms)
            lease.restarts += 1

    @staticmethod
    def renewal_ms(lease: ModelLease, at_ms: int) -> int:
        """Returns the new time of a lease after a start: its length, once; then the rest of it, less at each start."""
        if lease.restarts == 0:
            return lease.lease_ms
        return min(lease.expires_ms - at_ms, lease.lease_ms >> lease.restarts)

    def _created(self, at_ms: int, fields: list[Any]) -> None:
        templates, rows, *_ = fields
        self._require(0 < len(rows) <= _BATCH_JOBS_MAX, f"a submission holds {len(rows)} jobs")
        for row in rows:
            self._require(0 <= row[1] < len(templates), f"job {row[0]} names no template")
            job = self._new_job(at_ms, templates[row[1]], row)
            self._check_new(job)
            self.jobs[job.id] = job
            self._keep_key(job)
            self._keep_unique(job)
            self._wait(job, at_ms)

    def _new_job(self, at_ms: int, template: list[Any], row: list[Any]) -> ModelJob:
        kind, queue, priority, max_attempts, max_losses, _timeout, _backoff, simulated, *_ = template
        job_id, _, payload, not_before_ms, extra, *_ = row
        self.last_number += 1
        return ModelJob(
            id=job_id,
            number=self.last_number,
            type=kind,
            lane=(queue, "sim" if simulated else kind, priority),
            max_attempts=max_attempts,
            max_losses=max_losses,
            payload=payload,
            request_id=extra[0] if extra else "",
            unique_key=extra[6] if extra and len(extra) > 6 else "",  # noqa: PLR2004 - a later field
            created_ms=at_ms,
            not_before_ms=not_before_ms,
        )

    def _check_new(self, job: ModelJob) -> None:
        queue, _, priority = job.lane
        self._require(bool(job.id) and job.id not in self.jobs, f"the id {job.id!r} is that of another job")
        self._require(bool(job.type) and bool(queue), f"job {job.id} has no type or no queue")
        self._require(self._mode(queue) != DRAINING, f"job {job.id} was taken into the draining queue {queue}")
        self._require(0 <= priority <= _PRIORITY_MAX, f"job {job.id} has priority {priority}")
        self._require(1 <= job.max_attempts <= _ATTEMPTS_MAX, f"job {job.id} may be tried {job.max_attempts} times")
        self._require(0 <= job.max_losses <= _LOSSES_MAX, f"job {job.id} may be lost {job.max_losses} times")
        self._require(len(job.payload) <= _PAYLOAD_BYTES_MAX, f"the payload of job {job.id} is too large")
        self._require(job.not_before_ms <= job.created_ms + _YEAR_MS, f"job {job.id} is due in more than a year")

    def _keep_key(self, job: ModelJob) -> None:
        key = job.request_id
        if not key:
            return
        self._require(key not in self.keys, f"jobs {self.keys.get(key)} and {job.id} share the key {key!r}")
        self.keys[key] = job.id
        if self._keys_max and len(self.keys) > self._keys_max:
            del self.keys[next(iter(self.keys))]

    def _keep_unique(self, job: ModelJob) -> None:
        name = (job.type, job.unique_key)
        if job.unique_key:
            self._require(name not in self.unique, f"jobs {self.unique.get(name)} and {job.id} are both {name}")
            self.unique[name] = job.id

    def _granted(self, at_ms: int, fields: list[Any]) -> None:
        worker, lease_ms, token, job_ids, is_local, *_ = [*fields, False]
        self._require(bool(job_ids) and lease_ms > 0, "a grant is of no jobs or for no time")
        self._promote(at_ms)
        for job_id in job_ids:
            job = self._known(job_id)
            self._check_grantable(job, at_ms)
            if self._aging_ms is not None:
                self._check_priority(job)
            self._take_oldest(job)
            host = self.process if is_local else ""
            self._lease(job, ModelLease(token, job_id, worker, at_ms, lease_ms, at_ms + lease_ms, 0, host))
            token += 1

    def _check_grantable(self, job: ModelJob, at_ms: int) -> None:
        self._require(job.state == QUEUED, f"job {job.id} was granted while {NAMES[job.state]}")
        self._require(not job.cancel_requested, f"job {job.id} was granted after its cancel")
        self._require(self._mode(job.lane[0]) != PAUSED, f"job {job.id} was granted from a paused queue")
        self._require(job.not_before_ms <= at_ms, f"job {job.id} was granted at {at_ms}, due {job.not_before_ms}")

    def _take_oldest(self, job: ModelJob) -> None:
        oldest = self._head(job.lane)
        self._require(oldest is job, f"job {job.id} overtook {oldest.id if oldest else 'no job'} in its lane")
        heapq.heappop(self._lanes[job.lane])

    def _lease(self, job: ModelJob, lease: ModelLease) -> None:
        token = lease.token
        self._require(token > self.last_token, f"token {token} follows token {self.last_token}")
        self._require(job.token not in self.leases, f"job {job.id} has two live leases")
        self.last_token = token
        self.leases[token] = lease
        self._move(job, RUNNING)
        job.token, job.started_ms = token, lease.granted_ms
        job.attempts += 1

    def _check_priority(self, job: ModelJob) -> None:
        """Checks the order of priorities: a worker of a queue and route takes all priorities, the best head first."""
        queue, route, _ = job.lane
        for priority in range(_PRIORITY_MAX + 1):
            head = self._head((queue, route, priority))
            is_next = head is None or head is job or self._rank(job) < self._rank(head)
            self._require(is_next, f"job {job.id} overtook {head.id if head else 'no job'}")

    def _rank(self, job: ModelJob) -> tuple[int, int]:
        priority = job.lane[2]
        waited_since = (
            max(job.created_ms, job.not_before_ms) - priority * self._aging_ms if self._aging_ms else -priority
        )
        return waited_since, job.number

    def _extended(self, at_ms: int, fields: list[Any]) -> None:
        worker, lease_ms, tokens, *_ = fields
        self._require(bool(tokens) and lease_ms > 0, "an extension is of no leases or for no time")
        for token in tokens:
            lease = self._held(token, worker)
            lease.lease_ms, lease.expires_ms, lease.restarts = lease_ms, at_ms + lease_ms, 0

    def _revoked(self, at_ms: int, fields: list[Any]) -> None:
        worker, reason, rows, ids, *_ = [*fields, None]
        self._require(reason in REVOKE_REASONS and bool(rows), f"leases ended for the reason {reason!r}")
        self._require(bool(worker) or reason == "expired", f"leases without a worker were {reason}")
        self._check_names([row[0] for row in rows], ids)
        for token, state, is_spent, *_ in rows:
            lease = self._held(token, worker or None)
            self._require(is_spent or reason != "expired", f"the expired lease {token} was not counted")
            job = self.jobs[lease.job_id]
            is_forgiven = reason == "released" and job.attempts - job.failures - job.losses <= UNSPENT_GRANTS_MAX
            self._require(not (is_spent and is_forgiven), f"the released lease {token} was counted")
            del self.leases[token]
            self._place_lost(job, state, at_ms, is_spent=is_spent)

    def _place_lost(self, job: ModelJob, state: int, at_ms: int, *, is_spent: bool) -> None:
        losses = job.losses + is_spent
        right = FAILED if is_spent and losses > job.max_losses else QUEUED
        right = CANCELED if job.cancel_requested else right
        self._require(
            state == right,
            f"job {job.id}, lost {losses} times of {job.max_losses}, became {NAMES.get(state)}",
        )
        job.losses = losses
        self._move(job, state)
        if state == QUEUED:
            self._wait(job, at_ms)
        else:
            self._end(job, (0, state, b"", "", WORKER_LOST if state == FAILED else "", 0), at_ms)

    def _reported(self, at_ms: int, fields: list[Any]) -> None:
        worker, results, refused, ids, *_ = [*fields, None]
        self._require(bool(results or refused), "a report has no rows")
        self._check_names([row[0] for row in results], ids)
        for row in results:
            lease = self._held(row[0], worker)
            del self.leases[lease.token]
            self._take_result(self.jobs[lease.job_id], row, at_ms)
        for job_id, token, reason, *_ in refused:
            self._check_refused(worker, job_id, token, reason)

    def _check_names(self, tokens: list[int], ids: list[str] | None) -> None:
        """Checks that an event that names the jobs of its leases names the right ones."""
        if ids:
            right = [self.leases[token].job_id if token in self.leases else "" for token in tokens]
            self._require(ids == right, f"leases {tokens} were recorded for the jobs {ids}")

    def _take_result(self, job: ModelJob, row: list[Any], at_ms: int) -> None:
        token, state, output, summary, reason, runtime_ms, not_before_ms, *_ = row
        self._require(len(output) <= _OUTPUT_BYTES_MAX, f"the output of job {job.id} is over its limit")
        self._require(max(len(summary), len(reason)) <= _TEXT_CHARS_MAX, f"the texts of job {job.id} are too long")
        self._move(job, state)
        if state == QUEUED:
            self._retry(job, not_before_ms, at_ms)
            return
        self._require(state != CANCELED or job.cancel_requested, f"job {job.id} ended CANCELED, but had no cancel")
        self._require(not output or reason != OUTPUT_TOO_LARGE, f"job {job.id} kept a refused output")
        self._end(job, (token, state, output, summary, reason, runtime_ms), at_ms)

    def _retry(self, job: ModelJob, not_before_ms: int, at_ms: int) -> None:
        job.failures += 1
        self._require(not job.cancel_requested, f"job {job.id} was queued again after its cancel")
        self._require(job.failures < job.max_attempts, f"job {job.id} failed {job.failures} times and was queued again")
        self._require(not_before_ms >= at_ms, f"job {job.id} is due again before it failed")
        job.not_before_ms = not_before_ms
        self._wait(job, at_ms)

    def _check_refused(self, worker: str, job_id: str, token: int, reason: str) -> None:
        """Checks a refusal; rows are decided in order, so leases that this event ended have ended for it."""
        self._require(reason in REFUSE_REASONS, f"a report was refused for the reason {reason!r}")
        job = self.jobs.get(job_id)
        lease = self.leases.get(token or (job.token if job else 0))
        holder = lease.worker if lease and lease.job_id == job_id else None
        is_true = {
            "UNKNOWN_JOB": job is None,
            "NOT_THE_HOLDER": holder not in (None, worker),
            "LEASE_EXPIRED": holder == worker,
            "ALREADY_FINISHED": job is not None and job.state in TERMINAL,
            "STALE_TOKEN": job is not None and holder is None,
        }[reason]
        self._require(is_true, f"the report of {worker} on {job_id} was refused as {reason}, which is untrue")

    def _cancel_accepted(self, at_ms: int, fields: list[Any]) -> None:
        job_id, state, reason, *_ = fields
        job = self._known(job_id)
        self._require(len(reason) <= _TEXT_CHARS_MAX, f"the reason to cancel {job_id} is over its limit")
        self._require(not job.cancel_requested, f"the cancel of job {job_id} was accepted twice")
        job.cancel_requested = True
        if job.state == RUNNING:
            self._require(state == RUNNING, f"running job {job_id} was canceled without a report of its worker")
            return
        self._require(state == CANCELED, f"the cancel of queued job {job_id} did not end it")
        self._move(job, CANCELED)
        self._end(job, (0, CANCELED, b"", "", "", 0), at_ms)

    def _queue_mode_set(self, at_ms: int, fields: list[Any]) -> None:
        queue, mode, reason, *_ = fields
        self._require(bool(queue) and mode in (OPEN, PAUSED, DRAINING), f"queue {queue!r} is in mode {mode}")
        self._require(len(reason) <= _TEXT_CHARS_MAX, f"the reason to change queue {queue} is over its limit")
        before = self.modes.pop(queue, None)
        is_change = before[:2] != (mode, reason) if before else mode != OPEN
        self._require(is_change, f"queue {queue} was in mode {mode} already")
        if mode != OPEN:
            self.modes[queue] = (mode, reason, at_ms)
        self._require(len(self.modes) <= _QUEUES_CLOSED_MAX, "too many queues are not open")

    def _mode(self, queue: str) -> int:
        return self.modes[queue][0] if queue in self.modes else OPEN

    def _queued_canceled(self, at_ms: int, fields: list[Any]) -> None:
        job_ids, reason, *_ = fields
        self._require(0 < len(job_ids) <= _BATCH_JOBS_MAX, f"{len(job_ids)} jobs were canceled together")
        self._require(len(reason) <= _TEXT_CHARS_MAX, "the reason to cancel many is over its limit")
        for job_id in job_ids:
            job = self._known(job_id)
            self._require(job.state == QUEUED, f"job {job_id} was canceled as if it waited, while {NAMES[job.state]}")
            job.cancel_requested = True
            self._move(job, CANCELED)
            self._end(job, (0, CANCELED, b"", "", "", 0), at_ms)

    def _noted(self, _at_ms: int, fields: list[Any]) -> None:
        worker, notes, *_ = fields
        self._require(bool(notes), f"{worker} noted nothing")
        for job_id, token, permille, message, lines, *_ in notes:
            lease = self._held(token, worker)
            self._require(lease.job_id == job_id, f"a note under the lease {token} was recorded for {job_id}")
            self._require(-1 <= permille <= _PERMILLE_MAX, f"job {job_id} has the progress {permille} of 1,000")
            is_short = len(lines) <= _NOTE_LINES_MAX and max(map(len, [message, *lines])) <= _TEXT_CHARS_MAX
            self._require(is_short, f"a note of job {job_id} is over its limit")

    def _ticked(self, at_ms: int, fields: list[Any]) -> None:
        name, _, outcome, _, _, template, row, canceled, canceled_state, *_ = fields
        schedule = self.schedules.known(name)
        last = self.jobs.get(schedule.last_job_id)
        is_busy = last is not None and last.state not in TERMINAL
        if outcome == "triggered":
            self.schedules.trigger(fields)
        else:
            is_draining = self._mode(schedule.queue) == DRAINING
            self.schedules.tick(at_ms, fields, is_busy=is_busy, is_draining=is_draining)
        makes_room = outcome == "fired" and is_busy and schedule.overlap == "cancel_running"
        right = last.id if last is not None and makes_room and not last.cancel_requested else ""
        self._require(canceled == right, f"a tick of {name} canceled {canceled!r}, not {right!r}")
        self._require((row is not None) == (outcome in ("fired", "triggered")), f"a {outcome} tick made {row}")
        if canceled:
            self._cancel_accepted(at_ms, [canceled, canceled_state, ""])
        if row is not None:
            self._created(at_ms, [[template], [row]])
            self.schedules.check_job(fields)

    def _evicted(self, _at_ms: int, fields: list[Any]) -> None:
        count, *_ = fields
        self._forget(self._oldest(count, lambda _: True))

    def _retired(self, _at_ms: int, fields: list[Any]) -> None:
        others, failed, *_ = fields
        gone = self._oldest(others, lambda job: job.state != FAILED)
        self._forget(gone + self._oldest(failed, lambda job: job.state == FAILED))

    def _forget(self, gone: list[ModelJob]) -> None:
        self._require(bool(gone), "an event forgot no job")
        for job in gone:
            self.finished.remove(job.id)
            del self.jobs[job.id]
            if self.keys.get(job.request_id) == job.id:
                del self.keys[job.request_id]

    def _oldest(self, count: int, is_meant: Callable[[ModelJob], bool]) -> list[ModelJob]:
        """Returns the first `count` of these jobs that ended; raises if there are fewer."""
        found = [job for job in map(self.jobs.__getitem__, self.finished) if is_meant(job)]
        self._require(0 <= count <= len(found), f"{count} of {len(found)} jobs were forgotten")
        return found[:count]

    # -- parts of events

    def _known(self, job_id: str) -> ModelJob:
        self._require(job_id in self.jobs, f"job {job_id!r} is not known")
        return self.jobs[job_id]

    def _held(self, token: int, worker: str | None) -> ModelLease:
        self._require(token in self.leases, f"token {token} is not live")
        lease = self.leases[token]
        self._require(worker in (None, lease.worker), f"lease {token} of {lease.worker} was used by {worker}")
        return lease

    def _move(self, job: ModelJob, state: int) -> None:
        is_legal = (job.state, state) in MOVES
        self._require(is_legal, f"job {job.id} went from {NAMES[job.state]} to {NAMES.get(state, state)}")
        job.state = state

    def _end(self, job: ModelJob, result: ResultRow, at_ms: int) -> None:
        job.result, job.finished_ms = result, at_ms
        if job.unique_key:
            del self.unique[job.type, job.unique_key]
        self.finished.append(job.id)

    # -- waiting jobs

    def _wait(self, job: ModelJob, at_ms: int) -> None:
        if job.not_before_ms > at_ms:
            heapq.heappush(self._delayed, (job.not_before_ms, job.number, job))
        else:
            heapq.heappush(self._lanes.setdefault(job.lane, []), (job.number, job))

    def _promote(self, at_ms: int) -> None:
        while self._delayed and self._delayed[0][0] <= at_ms:
            job = heapq.heappop(self._delayed)[2]
            if job.state == QUEUED:
                self._wait(job, at_ms)

    def _head(self, lane: LaneKey) -> ModelJob | None:
        """Returns the oldest due job of a lane; drops entries of canceled jobs."""
        waiting = self._lanes.get(lane, [])
        while waiting and waiting[0][1].state != QUEUED:
            heapq.heappop(waiting)
        return waiting[0][1] if waiting else None

    # -- reading and comparing

    @property
    def unfinished(self) -> list[str]:
        """Ids of the jobs that are not terminal; empty once everything has drained."""
        return [job.id for job in self.jobs.values() if job.state not in TERMINAL]

    def view(self) -> dict[str, object]:
        """Returns the whole state as plain values, in the shape that `compare` expects."""
        waiting: dict[LaneKey, list[str]] = {}
        for job in self.jobs.values():
            if job.state == QUEUED:
                waiting.setdefault(job.lane, []).append(job.id)
        return {
            "jobs": {job_id: job.view() for job_id, job in self.jobs.items()},
            "leases": {token: lease.view() for token, lease in self.leases.items()},
            "keys": dict(self.keys),
            "unique": dict(self.unique),
            "modes": dict(self.modes),
            "schedules": {name: schedule.view() for name, schedule in self.schedules.kept.items()},
            "finished": list(self.finished),
            "waiting": waiting,
            "last_ms": self.last_ms,
            "last_token": self.last_token,
            "last_number": self.last_number,
            "position": self.position,
        }

    def compare(self, observed: Mapping[str, object]) -> None:
        """Raises unless the observed state is exactly the model's."""
        self._compare("the state", self.view(), observed)

    def compare_job(self, job_id: str, observed: Mapping[str, object] | None) -> None:
        """Raises unless one job is exactly the model's; None stands for a job that is not kept."""
        job = self.jobs.get(job_id)
        self._compare(f"job {job_id}", job.view() if job else None, observed)

    def compare_jobs(self, observed: Iterable[tuple[str, Mapping[str, object] | None]]) -> None:
        """Calls `compare_job` for each: a cheap check of the jobs that a step changed."""
        for job_id, view in observed:
            self.compare_job(job_id, view)

    def _compare(self, path: str, expected: object, observed: object) -> None:
        if expected == observed:
            return
        if isinstance(expected, Mapping) and isinstance(observed, Mapping):
            for key in [*expected, *(key for key in observed if key not in expected)]:
                self._compare(f"{path}, {key}", expected.get(key), observed.get(key))
        raise self._violation(f"{path}: expected {expected!r}, observed {observed!r}")
