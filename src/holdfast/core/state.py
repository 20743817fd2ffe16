"""Everything the journal says, in memory: jobs, leases, order, keys, counters, and a digest of it.

Invariants:
- Only `apply` methods change a book; replay of the same events gives an equal one.
- `digest` is the sum over all jobs of a term for what can change about them (core/digest.py). It costs one hash a
  transition, for a job keeps the term that it added last; so it is known at every position, and the journal stores it
  with every frame: a replay that would end in another state is noticed at the first frame that differs. A queue that
  is not open and a schedule add terms of their own.
- A job of an image has no term yet. The image's digest covers it, and the term is computed when the job first changes:
  a start does not hash every job. `prove` computes the digest from every job.
- Every change of state goes through `leave` and `enter`, which keep digest, counts and the table of legal
  transitions together.
"""

from collections.abc import Sequence

from holdfast.core import lifecycle
from holdfast.core.dedup import Dedup
from holdfast.core.digest import DIGEST_MASK, DIGEST_VERSION, DigestTerms, terms_of
from holdfast.core.footprint import held_bytes, result_bytes
from holdfast.core.lifecycle import LEGAL, NOWHERE, TERMINAL
from holdfast.core.listing import Listing
from holdfast.core.model import NO_MARK, Closure, Extra, Job, Lease, QueueMode, Schedule, Template
from holdfast.core.ready_queue import ReadyQueue
from holdfast.core.retention import FinishedJobs

_TEMPLATES_MAX = 10_000


def unique_name(job: Job) -> tuple[str, str]:
    """What at most one job that has not ended may be called."""
    return job.template.type, job.unique_key


class Book:
    """The state that the ledger's parts share."""

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
        self.jobs: dict[str, Job] = {}
        self.leases: dict[int, Lease] = {}
        self.tokens_of: dict[str, dict[int, None]] = {}
        self.ready = ReadyQueue()
        self.listing = Listing()
        self.dedup = Dedup(dedup_keys_max)
        #: The job that has not ended, by type and unique key.
        self.unique: dict[tuple[str, str], Job] = {}
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
        self.moves: list[tuple[Job, int]] = []
        self._templates: dict[Template, Template] = {}
        self._use(digest_version)

    @property
    def terms(self) -> DigestTerms:
        """Those of the version that the digest has now."""
        return self._terms

    def rehash(self, version: int) -> None:
        """Goes over to a version of the digest, at the cost of one term for each job, closed queue and schedule."""
        if version != self.digest_version:
            self._use(version)
            self.prove()

    def prove(self) -> None:
        """Computes the digest from everything that the book holds."""
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
        """One object for equal templates; a bounded saving of memory, nothing more."""
        known = self._templates.get(template)
        if known is None:
            if len(self._templates) >= _TEMPLATES_MAX:
                self._templates.clear()
            known = self._templates[template] = template
        return known

    def is_known(self, template: Template) -> bool:
        """Whether an equal template was accepted before, and so needs no second validation."""
        return template in self._templates

    def leave(self, job: Job, state: int) -> None:
        """Before any field of a job changes that goes to this state; raises if it may not."""
        if (job.state, state) not in LEGAL:
            lifecycle.check(job.state, state)
        self.lift(job)

    def lift(self, job: Job) -> None:
        """Before any field of a job changes that stays in its state, or is forgotten."""
        # A job of an image has no term until it first changes.
        mark = self._job_term(job) if job.mark == NO_MARK else job.mark
        self.digest = (self.digest - mark) & DIGEST_MASK
        self.listing.counts_of[job.chunk][job.state] -= 1

    def enter(self, job: Job, state: int) -> None:
        """After its fields have changed: the job is in this state now."""
        self.moves.append((job, job.state))
        job.state = state
        job.mark = mark = self._job_term(job)
        self.digest = (self.digest + mark) & DIGEST_MASK
        self.listing.counts_of[job.chunk][state] += 1

    def touch(self, job: Job) -> None:
        """After the fields of a job have changed that stays in its state."""
        self.moves.append((job, job.state))
        job.mark = mark = self._job_term(job)
        self.digest = (self.digest + mark) & DIGEST_MASK
        self.listing.counts_of[job.chunk][job.state] += 1

    def load(self, jobs: Sequence[Job]) -> None:
        """Puts jobs of an image behind those that are there; the caller puts those into lanes that wait."""
        held = 0
        self.jobs.update(zip([job.id for job in jobs], jobs, strict=True))
        self.listing.extend(jobs)
        for job in jobs:
            job.bytes_held = size = held_bytes(job)
            held += size
            if job.extra is not None:
                self._load_keys(job, job.extra)
        self.bytes_held += held

    def _load_keys(self, job: Job, extra: Extra) -> None:
        if extra.request_id:
            self.dedup.add(extra.request_id, job)
        if extra.unique_key and job.state not in TERMINAL:
            self.unique[unique_name(job)] = job

    def finish(self, job: Job, at_ms: int) -> None:
        """A job entered a terminal state; it will be forgotten in this order."""
        assert job.state in TERMINAL
        assert job.result is not None
        self.grow(job, result_bytes(job.result))
        self.finished.append(job)
        if job.extra is not None and job.extra.unique_key:
            del self.unique[unique_name(job)]
        assert job.finished_ms == at_ms

    def grow(self, job: Job, size: int) -> None:
        """A job holds so much more from now on; one that has ended does not change any more."""
        job.bytes_held += size
        self.bytes_held += size

    def set_mode(self, queue: str, closure: Closure) -> None:
        """The queue is in this mode from now on."""
        before = self.modes.pop(queue, None)
        if before is not None:
            self.digest = (self.digest - self._terms.closure(queue, before)) & DIGEST_MASK
        if closure.mode != QueueMode.OPEN:
            self.modes[queue] = closure
            self.digest = (self.digest + self._terms.closure(queue, closure)) & DIGEST_MASK
        self.ready.set_paused(queue, is_paused=closure.mode == QueueMode.PAUSED)

    def lift_schedule(self, schedule: Schedule) -> None:
        """Before a schedule changes or is forgotten."""
        self.digest = (self.digest - self._terms.schedule(schedule)) & DIGEST_MASK

    def put_schedule(self, schedule: Schedule) -> None:
        """After it was made or has changed."""
        self.schedules[schedule.spec.name] = schedule
        self.digest = (self.digest + self._terms.schedule(schedule)) & DIGEST_MASK

    def forget(self, job: Job) -> None:
        """Drops a job that waits nowhere, with its key; neither lease nor unique key may be left of it."""
        self.bytes_held -= job.bytes_held
        self.lift(job)
        if job.extra:
            self.dedup.remove(job.extra.request_id, job)
        del self.jobs[job.id]
        self.listing.forget(job)
        job.payload, job.result, job.extra = b"", None, None

    def drop_lease(self, token: int) -> Lease:
        """Ends a lease; its job is the caller's to place."""
        lease = self.leases.pop(token)
        tokens = self.tokens_of[lease.worker]
        del tokens[token]
        if not tokens:
            del self.tokens_of[lease.worker]
        return lease

    def audit(self) -> None:
        """Checks every cross-reference of the book; slow, for tests and offline verification."""
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
        assert all(job.bytes_held == held_bytes(job) for job in self.jobs.values())
        assert self.bytes_held == sum(job.bytes_held for job in self.jobs.values())
        assert all(token < self.next_token for token in self.leases)
