"""Everything the journal says, in memory: jobs, leases, order, keys, counters, and a digest of it.

Invariants:
- Only `apply` methods change a book; replay of the same events gives an equal one.
- `digest` is the sum over all jobs of a hash of what can change about them. It costs one hash a transition, for a job
  keeps the one that it added last; so it is known at every position, and the journal stores it with every frame: a
  replay that would end in another state is noticed at the first frame that differs. Hashes of integer tuples do not
  depend on the process's hash seed. A queue that is not open and a schedule add a hash of their own, so that a book
  without any has the digest that it always had.
- Every change of state goes through `leave` and `enter`, which keep digest, counts and the table of legal
  transitions together.
"""

from zlib import crc32

from holdfast.core import lifecycle
from holdfast.core.dedup import Dedup
from holdfast.core.lifecycle import LEGAL, NOWHERE, TERMINAL
from holdfast.core.listing import Listing
from holdfast.core.model import Closure, Job, Lease, QueueMode, Schedule, Template
from holdfast.core.ready_queue import ReadyQueue
from holdfast.core.retention import FinishedJobs

#: Changes whenever `fingerprint` or what it covers does; a journal written under another is not compared.
DIGEST_VERSION = 1
DIGEST_MASK = (1 << 64) - 1

_TEMPLATES_MAX = 10_000


def fingerprint(job: Job) -> int:
    """A hash of what can change about a job, equal in every process."""
    return hash(
        (
            job.number,
            job.state,
            job.token,
            job.not_before_ms,
            job.failures,
            job.losses,
            job.cancel_requested,
            job.finished_ms,
        )
    )


def unique_name(job: Job) -> tuple[str, str]:
    """What at most one job that has not ended may be called."""
    return job.template.type, job.unique_key


def closure_fingerprint(queue: str, closure: Closure) -> int:
    """A hash of a queue that is not open, equal in every process (that of a text would not be)."""
    return hash((crc32(queue.encode()), closure.mode, crc32(closure.reason.encode()), closure.at_ms))


def schedule_fingerprint(schedule: Schedule) -> int:
    """A hash of what can change about a schedule, equal in every process."""
    return hash(
        (
            crc32(schedule.spec.name.encode()),
            schedule.created_ms,
            schedule.next_ms,
            schedule.last_tick_ms,
            schedule.fired,
            schedule.skipped,
            schedule.missed,
            schedule.is_paused,
        )
    )


class Book:
    """The state that the ledger's parts share."""

    __slots__ = (
        "_templates",
        "bytes_held",
        "dedup",
        "digest",
        "finished",
        "jobs",
        "last_ms",
        "leases",
        "listing",
        "modes",
        "moves",
        "next_number",
        "next_token",
        "ready",
        "schedules",
        "tokens_of",
        "unique",
    )

    def __init__(self, dedup_keys_max: int = 0) -> None:
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
        self.digest = 0
        #: The jobs that the last event changed, each with its state before.
        self.moves: list[tuple[Job, int]] = []
        self._templates: dict[Template, Template] = {}

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
        self.digest = (self.digest - job.mark) & DIGEST_MASK
        self.listing.counts_of[job.chunk][job.state] -= 1

    def lift(self, job: Job) -> None:
        """Before any field of a job changes that stays in its state, or is forgotten."""
        self.digest = (self.digest - job.mark) & DIGEST_MASK
        self.listing.counts_of[job.chunk][job.state] -= 1

    def enter(self, job: Job, state: int) -> None:
        """After its fields have changed: the job is in this state now."""
        self.moves.append((job, job.state))
        job.state = state
        job.mark = mark = fingerprint(job)
        self.digest = (self.digest + mark) & DIGEST_MASK
        self.listing.counts_of[job.chunk][state] += 1

    def touch(self, job: Job) -> None:
        """After the fields of a job have changed that stays in its state."""
        self.moves.append((job, job.state))
        job.mark = mark = fingerprint(job)
        self.digest = (self.digest + mark) & DIGEST_MASK
        self.listing.counts_of[job.chunk][job.state] += 1

    def finish(self, job: Job, at_ms: int) -> None:
        """A job entered a terminal state; it will be forgotten in this order."""
        assert job.state in TERMINAL
        self.bytes_held += len(job.result.output) if job.result else 0
        self.finished.append(job)
        if job.extra is not None and job.extra.unique_key:
            del self.unique[unique_name(job)]
        assert job.finished_ms == at_ms

    def set_mode(self, queue: str, closure: Closure) -> None:
        """The queue is in this mode from now on."""
        before = self.modes.pop(queue, None)
        if before is not None:
            self.digest = (self.digest - closure_fingerprint(queue, before)) & DIGEST_MASK
        if closure.mode != QueueMode.OPEN:
            self.modes[queue] = closure
            self.digest = (self.digest + closure_fingerprint(queue, closure)) & DIGEST_MASK

    def lift_schedule(self, schedule: Schedule) -> None:
        """Before a schedule changes or is forgotten."""
        self.digest = (self.digest - schedule_fingerprint(schedule)) & DIGEST_MASK

    def put_schedule(self, schedule: Schedule) -> None:
        """After it was made or has changed."""
        self.schedules[schedule.spec.name] = schedule
        self.digest = (self.digest + schedule_fingerprint(schedule)) & DIGEST_MASK

    def queues_in(self, mode: QueueMode) -> frozenset[str]:
        """The names of the queues that are in a mode other than open."""
        return frozenset(queue for queue, closure in self.modes.items() if closure.mode == mode)

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
        others = sum(closure_fingerprint(queue, closure) for queue, closure in self.modes.items())
        others += sum(map(schedule_fingerprint, self.schedules.values()))
        assert self.digest == (others + sum(fingerprint(job) for job in self.jobs.values())) & DIGEST_MASK
        assert all(closure.mode != QueueMode.OPEN for closure in self.modes.values())
        live = [job for job in self.jobs.values() if job.unique_key and job.state not in TERMINAL]
        assert len(live) == len(self.unique)
        assert all(self.unique.get(unique_name(job)) is job for job in live)
        by_state = dict.fromkeys(range(NOWHERE + 1, max(lifecycle.State) + 1), 0)
        for job in self.jobs.values():
            assert job.mark == fingerprint(job), job
            by_state[job.state] += 1
            assert (job.state == lifecycle.RUNNING) == (job.token in self.leases), job
        self.ready.audit(by_state[lifecycle.QUEUED])
        for state, count in by_state.items():
            assert self.listing.count([state]) == count
        assert by_state[lifecycle.RUNNING] == len(self.leases) == sum(map(len, self.tokens_of.values()))
        assert sum(by_state[state] for state in TERMINAL) == len(self.finished) == len(list(self.finished))
        self.finished.audit()
        assert self.bytes_held == sum(job.bytes_held for job in self.jobs.values())
        assert all(token < self.next_token for token in self.leases)
