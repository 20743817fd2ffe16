"""The state that the journal's events build, in memory: jobs, leases, order, keys, counters, and a digest.

Invariants:
- Only `apply` methods change a state; replay of the same events gives an equal state.
- `digest` is the sum, over all jobs, of a term for the job's mutable fields (core/digest.py). It costs one hash for
  each transition, because a job keeps its current term. So the digest is known at every position, and the journal
  stores it with every frame: a replay that leads to another state is detected at the first frame that differs. Each
  queue that is not open and each schedule adds a term too.
- A job loaded from an image has no term yet. The image's digest covers it, and the term is computed when the job first
  changes, so that a start does not hash every job. `prove` computes the digest from every job.
- Every change of state goes through `leave` and `enter`, which keep the digest and the counts correct and check the
  table of legal transitions.
"""

from collections.abc import Sequence
from typing import Any, cast

from holdfast.core import lifecycle
from holdfast.core.digest import DIGEST_MASK, DIGEST_VERSION, DigestTerms, terms_of
from holdfast.core.footprint import JOB_BYTES, held_bytes, result_bytes
from holdfast.core.lane import NOT_WAITING, Lane, LaneKey
from holdfast.core.lifecycle import LEGAL, NOWHERE, QUEUED, TERMINAL
from holdfast.core.listing import Listing, ListingChunk
from holdfast.core.model import NO_MARK, Closure, Extra, JobRecord, Lease, QueueMode, Schedule, Template
from holdfast.core.ready_queue import ReadyQueue
from holdfast.core.retention import FinishedJobs

_TEMPLATES_MAX = 10_000


def unique_name(job: JobRecord) -> tuple[str, str]:
    """Type and unique key: at most one unfinished job may have them."""
    return job.template.type, job.unique_key


class Dedup:
    """Request ids and their jobs, oldest first, for deduplication of submissions.

    A lookup changes nothing, so a read needs no event. A key is removed together with its job. If `keys_max` is set
    (storage in memory), the oldest key is removed when there are more than `keys_max`.
    """

    __slots__ = ("_jobs", "keys_max")

    def __init__(self, keys_max: int = 0) -> None:
        self._jobs: dict[str, JobRecord] = {}
        self.keys_max = keys_max

    def __len__(self) -> int:
        return len(self._jobs)

    def find(self, key: str) -> JobRecord | None:
        """The job with this request id, as long as the key is kept."""
        return self._jobs.get(key)

    def add(self, key: str, job: JobRecord) -> None:
        """Maps the key to this job."""
        self._jobs[key] = job
        if self.keys_max and len(self._jobs) > self.keys_max:
            del self._jobs[next(iter(self._jobs))]

    def remove(self, key: str, job: JobRecord) -> None:
        """Removes the key of a removed job, unless the key now belongs to a newer job."""
        if self._jobs.get(key) is job:
            del self._jobs[key]


class LedgerState:
    """The state that the parts of the ledger share."""

    __slots__ = (
        "_job_term",
        "_templates",
        "_terms",
        "bytes_held",
        "dedup",
        "digest",
        "digest_version",
        "finished",
        "jobs",
        "last_ms",
        "leases",
        "listing",
        "modes",
        "moves",
        "next_number",
        "next_token",
        "process",
        "ready",
        "schedules",
        "tokens_of",
        "unique",
    )

    def __init__(self, dedup_keys_max: int = 0, digest_version: int = DIGEST_VERSION) -> None:
        self.jobs: dict[str, JobRecord] = {}
        self.leases: dict[int, Lease] = {}
        self.tokens_of: dict[str, dict[int, None]] = {}
        self.ready = ReadyQueue()
        self.listing = Listing()
        self.dedup = Dedup(dedup_keys_max)
        #: The unfinished job, by type and unique key.
        self.unique: dict[tuple[str, str], JobRecord] = {}
        #: The queues that are not open.
        self.modes: dict[str, Closure] = {}
        self.schedules: dict[str, Schedule] = {}
        self.finished = FinishedJobs()
        self.bytes_held = 0
        self.next_number = 1
        self.next_token = 1
        self.last_ms = 0
        #: The process that serves, or served last.
        self.process = ""
        self.digest = 0
        #: The jobs that the last event changed, each with its state before.
        self.moves: list[tuple[JobRecord, int]] = []
        self._templates: dict[Template, Template] = {}
        self._use(digest_version)

    @property
    def terms(self) -> DigestTerms:
        """The terms of the current digest version."""
        return self._terms

    def rehash(self, version: int) -> None:
        """Switches to another digest version, at the cost of one term for each job, closed queue and schedule."""
        if version != self.digest_version:
            self._use(version)
            self.prove()

    def prove(self) -> None:
        """Computes the digest from the content of the state."""
        term = self._job_term
        total = sum(self._terms.closure(queue, closure) for queue, closure in self.modes.items())
        total += sum(map(self._terms.schedule, self.schedules.values()))
        for job in self.jobs.values():
            job.mark = term(job)
            total += job.mark
        self.digest = total & DIGEST_MASK

    def _use(self, version: int) -> None:
        self.digest_version = version
        self._terms = terms_of(version)
        self._job_term = self._terms.job

    def intern(self, template: Template) -> Template:
        """Returns one object for equal templates, to save memory; the cache is bounded."""
        known = self._templates.get(template)
        if known is None:
            if len(self._templates) >= _TEMPLATES_MAX:
                self._templates.clear()
            known = self._templates[template] = template
        return known

    def is_known(self, template: Template) -> bool:
        """Whether an equal template was accepted before, so that it needs no validation."""
        return template in self._templates

    def leave(self, job: JobRecord, state: int) -> None:
        """Must be called before the fields of a job change for a move to this state; raises if it is illegal."""
        if (job.state, state) not in LEGAL:
            lifecycle.check(job.state, state)
        self.lift(job)

    def lift(self, job: JobRecord) -> None:
        """Subtracts a job from digest and counts, before its fields change or it is removed."""
        # A job loaded from an image has no term until it first changes.
        mark = self._job_term(job) if job.mark == NO_MARK else job.mark
        self.digest = (self.digest - mark) & DIGEST_MASK
        self.listing.counts_of[job.chunk][job.state] -= 1

    def enter(self, job: JobRecord, state: int) -> None:
        """Moves a job to this state, after its fields have changed, and adds it to digest and counts."""
        self.moves.append((job, job.state))
        job.state = state
        job.mark = mark = self._job_term(job)
        self.digest = (self.digest + mark) & DIGEST_MASK
        self.listing.counts_of[job.chunk][state] += 1

    def touch(self, job: JobRecord) -> None:
        """Adds a job back to digest and counts, after its fields have changed within the same state."""
        self.moves.append((job, job.state))
        job.mark = mark = self._job_term(job)
        self.digest = (self.digest + mark) & DIGEST_MASK
        self.listing.counts_of[job.chunk][job.state] += 1

    def load(
        self, jobs: Sequence[JobRecord], templates: Sequence[Template], last_ms: int, *, into_lanes: bool = True
    ) -> None:
        """Appends jobs of an image to the existing ones, and the queued ones to their lanes.

        Each job has the index of its template, and gets the template. One loop fills all indexes: with a loop for each
        of them, a start with a million jobs takes a quarter longer.
        """
        by_id, by_index, waiting_state = self.jobs, cast("Any", templates), QUEUED if into_lanes else NOWHERE
        held = 0
        created_ms: int | None = None
        template: Template | None = None
        chunks, lanes = dict[int, ListingChunk](), dict[LaneKey, Lane]()
        for job in jobs:
            if job.created_ms != created_ms:
                created_ms = job.created_ms
                number, chunk = self.listing.open_chunk(created_ms)
                chunks[number] = chunk
                list_job, counts = chunk.jobs.append, chunk.counts
            by_id[job.id] = job
            job.chunk = number
            list_job(job)
            job.template = own = by_index[job.template]
            if job.extra is not None:
                self._load_keys(job, job.extra)
            if job.state != waiting_state:
                counts[job.state] += 1
                job.place = NOT_WAITING
                held += held_bytes(job)
                continue
            # A queued job has neither a result nor a reason to stop: most of them are counted without a call.
            held += JOB_BYTES + len(job.id) + len(job.payload) if job.extra is None else held_bytes(job)
            if job.not_before_ms > last_ms:
                self.ready.put_delayed(job)
                continue
            if own is not template:
                template = own
                lane = self.ready.lane_of(job)
                lanes[lane.key] = lane
                enqueue = lane.fresh.append
            enqueue(job)
        for chunk in chunks.values():
            chunk.count_rest(QUEUED)
        for lane in lanes.values():
            lane.ready = len(lane.fresh)
        self.bytes_held += held

    def _load_keys(self, job: JobRecord, extra: Extra) -> None:
        if extra.request_id:
            self.dedup.add(extra.request_id, job)
        if extra.unique_key and job.state not in TERMINAL:
            self.unique[unique_name(job)] = job

    def finish(self, job: JobRecord, at_ms: int) -> None:
        """Records that a job entered a terminal state; jobs are removed in this order."""
        assert job.state in TERMINAL
        assert job.result is not None
        self.grow(result_bytes(job.result))
        self.finished.append(job)
        if job.extra is not None and job.extra.unique_key:
            del self.unique[unique_name(job)]
        assert job.finished_ms == at_ms

    def grow(self, size: int) -> None:
        """Adds to the bytes that jobs hold; the size of a finished job does not change any more."""
        self.bytes_held += size

    def set_mode(self, queue: str, closure: Closure) -> None:
        """Sets the mode of a queue."""
        before = self.modes.pop(queue, None)
        if before is not None:
            self.digest = (self.digest - self._terms.closure(queue, before)) & DIGEST_MASK
        if closure.mode != QueueMode.OPEN:
            self.modes[queue] = closure
            self.digest = (self.digest + self._terms.closure(queue, closure)) & DIGEST_MASK
        self.ready.set_paused(queue, is_paused=closure.mode == QueueMode.PAUSED)

    def lift_schedule(self, schedule: Schedule) -> None:
        """Subtracts a schedule from the digest, before it changes or is removed."""
        self.digest = (self.digest - self._terms.schedule(schedule)) & DIGEST_MASK

    def put_schedule(self, schedule: Schedule) -> None:
        """Adds a new or changed schedule, and its digest term."""
        self.schedules[schedule.spec.name] = schedule
        self.digest = (self.digest + self._terms.schedule(schedule)) & DIGEST_MASK

    def forget(self, job: JobRecord) -> None:
        """Removes a job that waits nowhere, and its request id; it must have no lease and no live unique key."""
        self.bytes_held -= job.bytes_held or held_bytes(job)
        self.lift(job)
        if job.extra:
            self.dedup.remove(job.extra.request_id, job)
        del self.jobs[job.id]
        self.listing.forget(job)
        job.payload, job.result, job.extra = b"", None, None

    def drop_lease(self, token: int) -> Lease:
        """Ends a lease; the caller moves its job."""
        lease = self.leases.pop(token)
        tokens = self.tokens_of[lease.worker]
        del tokens[token]
        if not tokens:
            del self.tokens_of[lease.worker]
        return lease

    def audit(self) -> None:
        """Checks every cross-reference of the state; slow, for tests and offline verification."""
        others = sum(self._terms.closure(queue, closure) for queue, closure in self.modes.items())
        others += sum(map(self._terms.schedule, self.schedules.values()))
        assert self.digest == (others + sum(self._job_term(job) for job in self.jobs.values())) & DIGEST_MASK
        assert all(closure.mode != QueueMode.OPEN for closure in self.modes.values())
        live = [job for job in self.jobs.values() if job.unique_key and job.state not in TERMINAL]
        assert len(live) == len(self.unique)
        assert all(self.unique.get(unique_name(job)) is job for job in live)
        by_state = dict.fromkeys(range(NOWHERE + 1, max(lifecycle.State) + 1), 0)
        for job in self.jobs.values():
            assert job.mark in (NO_MARK, self._job_term(job)), job
            by_state[job.state] += 1
            assert (job.state == lifecycle.RUNNING) == (job.token in self.leases), job
        self.ready.audit(by_state[lifecycle.QUEUED])
        for state, count in by_state.items():
            assert self.listing.count([state]) == count
        assert by_state[lifecycle.RUNNING] == len(self.leases) == sum(map(len, self.tokens_of.values()))
        assert sum(by_state[state] for state in TERMINAL) == len(self.finished) == len(list(self.finished))
        self.finished.audit()
        assert all(job.bytes_held in (0, held_bytes(job)) for job in self.jobs.values())
        assert self.bytes_held == sum(map(held_bytes, self.jobs.values()))
        assert all(token < self.next_token for token in self.leases)
