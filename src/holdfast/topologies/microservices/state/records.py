"""Records: all data of the job service about its jobs, as a state machine.

It is the ledger's state without leases and lanes: the worker of a job is only a name and a token, and the coordinator
service decides when an attempt ends. The ledger's own intake checks submissions.

Invariants:
- A state changes by `move` alone: from the state that the caller expects, along the table of the lifecycle, and out of
  RUNNING only under the token that the last move into it made (0 matches any token).
- Tokens and order numbers only grow, and deletion frees neither.
- A job that a second submission has found is not deleted any more.
- Deciding changes nothing; `apply` decides nothing and cannot fail. Replay is `apply` alone.
"""

from collections.abc import Callable, Collection, Iterable, Iterator

import msgspec

from holdfast import limits
from holdfast.core.commands import Evict, Refusal, Submit, Submitted
from holdfast.core.decode_errors import reading, unreadable
from holdfast.core.digest import DIGEST_MASK
from holdfast.core.events import Created, Evicted, Retired
from holdfast.core.footprint import text_bytes
from holdfast.core.ledger import wanted_states
from holdfast.core.lifecycle import CANCELED, FAILED, LEGAL, QUEUED, RUNNING, TERMINAL, State
from holdfast.core.listing import Place, Scan
from holdfast.core.model import JobRecord, NewJob, Now, Result, Template
from holdfast.core.outcomes import is_endless
from holdfast.core.state import LedgerState, unique_name
from holdfast.core.tasks import TaskManager, end, unknown_job
from holdfast.core.text import as_text
from holdfast.core.validation import check_reason, invalid
from holdfast.topologies.microservices.state.record_events import (
    CancelRequested,
    CreateReply,
    Deleted,
    Move,
    Moved,
    MoveReply,
    RecordDecision,
    RecordEvent,
    Shared,
    SpentBudget,
)
from holdfast.topologies.microservices.state.record_image import dump, load

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[RecordEvent] = msgspec.msgpack.Decoder(RecordEvent)


class Records:
    """All records: the state after all events so far."""

    def __init__(self, dedup_keys_max: int = 0, memory_bytes: int = 0) -> None:
        """`dedup_keys_max` bounds the number of remembered request ids; 0: each as long as its job.

        New jobs are refused above `memory_bytes` of held jobs; 0: no limit.
        """
        self._keys_max = dedup_keys_max
        self._memory_bytes = memory_bytes
        self._begin(LedgerState(dedup_keys_max))

    def _begin(self, state: LedgerState) -> None:
        self.state = state
        self._tasks = TaskManager(state, self._memory_bytes)
        #: The worker of each running job, by job id.
        self.workers: dict[str, str] = {}
        #: Jobs that a second submission has found.
        self.shared: set[str] = set()
        self._sum = 0

    # -- the machine

    @property
    def digest(self) -> int:
        """A hash of the state, equal wherever the same events were applied."""
        return (self.state.digest + self._sum) & DIGEST_MASK

    @property
    def digest_version(self) -> int:
        """The version of the digest's computation."""
        return self.state.digest_version

    def rehash(self, version: int) -> None:
        """Switches to a version of the digest."""
        if version == self.digest_version:
            return
        self.state.rehash(version)
        terms, jobs = self.state.terms, self.state.jobs
        self._sum = sum(terms.worker(jobs[job_id].number, worker) for job_id, worker in self.workers.items())
        self._sum += sum(terms.shared(jobs[job_id].number) for job_id in self.shared)

    def encode(self, event: RecordEvent) -> bytes:
        """Encodes an event for the journal."""
        return _encoder.encode(event)

    def decode(self, data: bytes) -> RecordEvent:
        """Decodes an event; `msgspec.MsgspecError` for bytes that no version ever wrote."""
        try:
            return _decoder.decode(data)
        except (UnicodeDecodeError, RecursionError) as error:
            raise unreadable(error) from error

    def empty(self) -> "Records":
        """Returns another instance, without any event."""
        return Records(self._keys_max, self._memory_bytes)

    def image(self) -> Iterator[bytes]:
        """Yields the whole state."""
        return dump(self.state, self.workers, self.shared)

    @reading()
    def restore(self, chunks: Iterable[bytes]) -> None:
        """Replaces the state by that of an image."""
        state, workers, shared = load(chunks, self._keys_max, self.digest_version)
        self._begin(state)
        for job_id, worker in workers.items():
            self._set_worker(state.jobs[job_id], worker)
        for job_id in shared:
            self._share(state.jobs[job_id])

    def apply(self, event: RecordEvent) -> None:
        """Applies an event."""
        state = self.state
        assert event.at_ms >= state.last_ms, "events must be in log time order"
        state.last_ms = event.at_ms
        state.moves.clear()
        match event:
            case Created():
                self._tasks.apply_created(event)
                for row in event.jobs:  # waiting jobs are in the queue service
                    state.ready.take(state.jobs[row.id])
            case Evicted() | Retired():
                self._apply_forgotten(event)
            case Shared():
                self._share(state.jobs[event.job_id])
            case Deleted():
                self._apply_deleted(state.jobs[event.job_id])
            case Moved():
                self._apply_moved(event)
            case CancelRequested():
                job = state.jobs[event.job_id]
                state.lift(job)
                job.cancel_requested, job.cancel_reason = True, event.reason
                state.grow(text_bytes(event.reason))
                state.touch(job)

    # -- decisions

    def create(self, template: Template, new: NewJob, now_ms: int, *, is_id_given: bool) -> RecordDecision | Refusal:
        """Creates a record, or finds the existing one and marks it as shared."""
        decision = self._tasks.submit(Submit([template], [new], is_id_given), Now(now_ms, 0))
        if isinstance(decision, Refusal):
            return decision
        submitted = decision.reply
        assert isinstance(submitted, Submitted)
        if 0 in submitted.refusals:
            return submitted.refusals[0]
        if 0 not in submitted.existing:
            assert isinstance(decision.event, Created)
            reply = CreateReply(new.id, QUEUED, now_ms, self.state.next_number, is_new=True)
            return RecordDecision(decision.event, reply)
        job = self.state.jobs[submitted.job_ids[0]]
        event = None if job.id in self.shared else Shared(now_ms, job.id)
        return RecordDecision(event, CreateReply(job.id, State(job.state), job.created_ms, job.number, is_new=False))

    def delete(self, job_id: str, expected: State, now_ms: int) -> RecordDecision | Refusal:
        """Undoes a submission, unless the job has moved on or another submission has found it."""
        job = self.state.jobs.get(job_id)
        if job is None:
            return unknown_job(job_id)
        state = State(job.state)
        if state != expected:
            return RecordDecision(None, MoveReply(applied=False, state=state, why_not="STATUS_MISMATCH"))
        if job.id in self.shared:
            return RecordDecision(None, MoveReply(applied=False, state=state, why_not="JOB_SHARED"))
        return RecordDecision(
            Deleted(now_ms, job.id), MoveReply(applied=True, state=state, priority=job.template.priority)
        )

    def move(self, command: Move, now_ms: int) -> RecordDecision | Refusal:
        """Changes the state if the guard holds; otherwise the reply says why not, and nothing changes."""
        refusal = _check_move(command, now_ms)
        if refusal:
            return refusal
        job = self.state.jobs.get(command.job_id)
        if job is None:
            return unknown_job(command.job_id)
        state = State(job.state)
        if state != command.source:
            return RecordDecision(None, MoveReply(applied=False, state=state, why_not="STATUS_MISMATCH"))
        if state == RUNNING and command.token not in (0, job.token):
            return RecordDecision(None, MoveReply(applied=False, state=state, why_not="STALE_TOKEN"))
        if command.target == RUNNING and job.not_before_ms > now_ms:
            # The queue service may have an older entry, from before the job was delayed.
            return RecordDecision(None, MoveReply(applied=False, state=state, why_not="NOT_DUE"))
        event = self._moved(job, command, now_ms)
        is_try = state == RUNNING and (event.state != QUEUED or event.spends != SpentBudget.NOTHING)
        reply = MoveReply(
            applied=True,
            state=command.target,
            token=event.token if command.target == RUNNING else 0,
            before=state,
            worker=event.worker or self.workers.get(job.id, ""),
            attempt=job.failures + job.losses + (is_try or command.target == RUNNING),
            priority=job.template.priority,
        )
        return RecordDecision(event, reply)

    def _moved(self, job: JobRecord, command: Move, now_ms: int) -> Moved:
        if command.target == RUNNING:
            return Moved(now_ms, job.id, RUNNING, self.state.next_token, command.worker)
        reason = as_text(command.reason[: limits.REASON_CHARS_MAX])
        if command.source == QUEUED:
            return Moved(now_ms, job.id, command.target, reason=reason)
        spends = command.spends
        if command.target == QUEUED and spends == SpentBudget.NOTHING and is_endless(job):
            spends = SpentBudget.LOSS
        return Moved(now_ms, job.id, command.target, job.token, "", reason, command.not_before_ms, spends)

    def request_cancel(self, job_id: str, reason: str, now_ms: int) -> RecordDecision | Refusal:
        """Sets the cancel flag; the first reason stays, and a terminal job stays as it is."""
        refusal = check_reason(reason)
        if refusal:
            return refusal
        job = self.state.jobs.get(job_id)
        if job is None:
            return unknown_job(job_id)
        state = State(job.state)
        if state in TERMINAL:
            return RecordDecision(None, MoveReply(applied=False, state=state, why_not="ALREADY_FINISHED"))
        event = None if job.cancel_requested else CancelRequested(now_ms, job.id, reason)
        worker, priority = self.workers.get(job.id, ""), job.template.priority
        return RecordDecision(
            event, MoveReply(applied=True, state=state, worker=worker, attempt=job.attempts, priority=priority)
        )

    def _apply_forgotten(self, event: Evicted | Retired) -> None:
        tasks = self._tasks
        gone = tasks.apply_retired(event) if isinstance(event, Retired) else tasks.apply_evicted(event)
        for job in gone:
            self._unshare(job)

    def evict(self, command: Evict, now_ms: int) -> RecordDecision:
        """Removes finished records that are too old, too many or too large, oldest first; replies with their number."""
        decision = self._tasks.evict(command, Now(now_ms, 0))
        assert decision.event is None or isinstance(decision.event, Retired)
        return RecordDecision(decision.event, decision.reply)

    # -- reads

    def job(self, job_id: str) -> JobRecord | None:
        """Returns the record, as long as it is kept."""
        return self.state.jobs.get(job_id)

    def page(
        self, states: Collection[int], offset: int, size: int, *, newest_first: bool
    ) -> tuple[list[JobRecord], bool]:
        """Returns a page of records by creation, and whether more follow; no states means all of them."""
        return self.state.listing.page(wanted_states(states), offset, size, newest_first=newest_first)

    def scan(
        self,
        states: Collection[int],
        after: Place | None,
        size: int,
        *,
        newest_first: bool,
        wants: Callable[[JobRecord], bool],
        created_from_ms: int = 0,
        created_before_ms: int = 0,
    ) -> tuple[list[JobRecord], Place | None]:
        """Returns wanted records by creation, after a place, and the place to continue from; see `Listing.scan`."""
        scan = Scan(wanted_states(states), wants, newest_first, created_from_ms, created_before_ms)
        return self.state.listing.scan(scan, after, size, limits.SCAN_JOBS_MAX)

    # -- application

    def _apply_deleted(self, job: JobRecord) -> None:
        state = self.state
        if job.state in TERMINAL:
            state.finished.remove(job)
        elif job.unique_key:
            del state.unique[unique_name(job)]
        self._set_worker(job, "")
        state.forget(job)

    def _apply_moved(self, event: Moved) -> None:
        state, job = self.state, self.state.jobs[event.job_id]
        before = job.state
        state.leave(job, event.state)
        self._set_worker(job, "")
        job.failures += event.spends == SpentBudget.FAILURE and event.state == QUEUED
        job.losses += event.spends == SpentBudget.LOSS
        if event.state == RUNNING:
            assert event.token == state.next_token
            state.next_token += 1
            job.token, job.started_ms = event.token, event.at_ms
            job.grants += 1
            state.enter(job, RUNNING)
            self._set_worker(job, event.worker)
        elif event.state == QUEUED:
            job.not_before_ms = event.not_before_ms or job.not_before_ms
            job.lost_ms = event.at_ms if event.spends != SpentBudget.FAILURE else job.lost_ms
            state.enter(job, QUEUED)
        else:
            job.cancel_requested |= before == QUEUED
            end(state, job, _result(event), event.at_ms)

    # -- what a LedgerState does not have

    def _set_worker(self, job: JobRecord, worker: str) -> None:
        before = self.workers.pop(job.id, "")
        if worker:
            self.workers[job.id] = worker
        term = self.state.terms.worker
        self._sum += (term(job.number, worker) if worker else 0) - (term(job.number, before) if before else 0)

    def _share(self, job: JobRecord) -> None:
        self.shared.add(job.id)
        self._sum += self.state.terms.shared(job.number)

    def _unshare(self, job: JobRecord) -> None:
        if job.id in self.shared:
            self.shared.remove(job.id)
            self._sum -= self.state.terms.shared(job.number)


def _result(event: Moved) -> Result:
    """Returns the result; its token is 0 if no worker has reported it, so that it does not count as an attempt."""
    token = 0 if event.spends == SpentBudget.LOSS else event.token
    if event.state == FAILED:
        return Result(token, FAILED, failure_reason=event.reason)
    return Result(token, event.state, summary=event.reason if event.state == CANCELED else "")


def _check_move(command: Move, now_ms: int) -> Refusal | None:
    """Returns the problem of a move that does not depend on the state of its job, or None."""
    source, target = command.source, command.target
    if (source, target) not in LEGAL:
        return invalid("TRANSITION_ILLEGAL", f"there is no transition from {source.name} to {target.name}")
    if command.spends != SpentBudget.NOTHING and source != RUNNING:
        return invalid(
            "SPENDS_INVALID", f"only a move from RUNNING may count as {command.spends.name}, got {source.name}"
        )
    if command.not_before_ms and target != QUEUED:
        return invalid("DELAY_INVALID", f"only a move to QUEUED may have a due time, got {target.name}")
    if not 0 <= command.not_before_ms <= now_ms + limits.DELAY_MS_MAX:
        return invalid("DELAY_TOO_LONG", "the job must be due within a year")
    return None
