"""Who holds which running job, as far as this process knows.

Nothing here must survive the process: the owner of the records knows who runs what, under which token. What is not in
the table is adopted from there, with the whole time of a lease. So a lease here can be missing, or one that has ended
elsewhere; it is never the reason why a report counts twice, for the token is checked by the owner of the record.

Invariants: one lease a job, under the largest token that was heard of; a lease that is over (it has a verdict) is
never extended again, and stays until somebody has seen to its job. All times are served time: they stand still while
this process does, so that a pause of its own costs nobody a lease.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.core.model import Now
from holdfast.proto import taskqueue_internal_pb2 as pb


@dataclass(frozen=True, slots=True)
class LeaseVerdict:
    """Why a lease is over; `is_spent` counts against the job's budget for losses."""

    reason: str
    is_spent: bool


#: Stands for this service itself where it takes a job only to end it; no worker has this name.
NOBODY = ""

EXPIRED = LeaseVerdict("expired", is_spent=True)
NOT_RUNNING = LeaseVerdict("not-running", is_spent=False)
RELEASED = LeaseVerdict("released", is_spent=False)
LEFT = LeaseVerdict("disconnected", is_spent=True)
#: Its job went back to QUEUED; what is left to do is to see that it waits in the queue.
RETURNED = LeaseVerdict("returned", is_spent=False)


@dataclass(slots=True, eq=False)
class HeldJob:
    """The right of one worker to run one job."""

    job_id: str
    token: int
    worker: str
    granted_ms: int
    deadline_ms: int
    cancel_requested: bool = False
    #: Its worker was answered with it, or has named it.
    is_confirmed: bool = False
    verdict: LeaseVerdict | None = None
    #: When to try again to see to its job, once it is over.
    retry_ms: int = 0
    #: Whoever ends the lease holds this, so that a report and a loss of the same job come one after the other.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class LeaseTable:
    """All leases by job and by worker."""

    def __init__(self, lease_ms: int) -> None:
        self.lease_ms = lease_ms
        self._leases: dict[str, HeldJob] = {}
        self._of_worker: dict[str, dict[str, HeldJob]] = {}
        self._over: dict[str, HeldJob] = {}
        #: No lease expires before this.
        self._earliest_ms = 0

    def __len__(self) -> int:
        return len(self._leases)

    def __contains__(self, lease: HeldJob) -> bool:
        return self._leases.get(lease.job_id) is lease

    def get(self, job_id: str) -> HeldJob | None:
        """The lease on a job, over or not."""
        return self._leases.get(job_id)

    def of_worker(self, worker: str) -> list[HeldJob]:
        """What a worker holds and has not lost."""
        return [lease for lease in self._of_worker.get(worker, {}).values() if lease.verdict is None]

    def held_by(self, worker: str, job_id: str, token: int) -> HeldJob | None:
        """The lease that a worker names, if it has it; token 0 means the one on the job."""
        lease = self._leases.get(job_id)
        if lease is None or lease.verdict or lease.worker != worker or token not in {0, lease.token}:
            return None
        return lease

    # -- coming

    def grant(self, job_id: str, token: int, worker: str, now: Now) -> HeldJob:
        """A lease that its worker is about to be told of."""
        lease = self._put(job_id, token, worker, now)
        lease.is_confirmed = True
        return lease

    def adopt(self, record: pb.GetJobRecordResponse, now: Now) -> HeldJob:
        """The lease that the record of a running job speaks of: a known one is kept, another begins now."""
        lease = self._put(record.summary.job_id, record.token, record.worker_id, now)
        if lease.token == record.token:
            lease.cancel_requested |= record.summary.cancel_requested
        return lease

    def _put(self, job_id: str, token: int, worker: str, now: Now) -> HeldJob:
        known = self._leases.get(job_id)
        if known is not None:
            if known.token >= token:  # the same, or a word that comes too late
                return known
            self.drop(known)
        lease = HeldJob(job_id, token, worker, now.served_ms, now.served_ms + self.lease_ms)
        self._leases[job_id] = lease
        self._of_worker.setdefault(worker, {})[job_id] = lease
        self._earliest_ms = min(self._earliest_ms, lease.deadline_ms)
        return lease

    # -- staying

    def extend(self, worker: str, named: Mapping[str, int] | None, now: Now) -> list[HeldJob]:
        """A heartbeat moves what it names; gives the leases that it does not name. None names everything."""
        missing = []
        for lease in self.of_worker(worker):
            if named is None:
                lease.deadline_ms = now.served_ms + self.lease_ms
            elif named.get(lease.job_id, -1) in {0, lease.token}:
                lease.deadline_ms = now.served_ms + self.lease_ms
                lease.is_confirmed = True
            else:
                missing.append(lease)
        return missing

    # -- going

    def judge(self, lease: HeldJob, verdict: LeaseVerdict) -> None:
        """The lease is over; somebody will see to its job."""
        if lease in self and lease.verdict is None:
            lease.verdict = verdict
            self._over[lease.job_id] = lease

    def expire(self, now: Now) -> None:
        """Whatever is past its deadline is over."""
        if now.served_ms < self._earliest_ms:
            return
        running = [lease for lease in self._leases.values() if lease.verdict is None]
        for lease in running:
            if lease.deadline_ms <= now.served_ms:
                self.judge(lease, EXPIRED)
        deadlines = [lease.deadline_ms for lease in running if lease.verdict is None]
        self._earliest_ms = min(deadlines, default=now.served_ms + self.lease_ms)

    def over(self) -> list[HeldJob]:
        """Leases whose jobs wait for somebody to see to them."""
        return list(self._over.values())

    def drop(self, lease: HeldJob) -> None:
        """Nothing is left to do for this lease."""
        if lease not in self:
            return
        del self._leases[lease.job_id]
        self._over.pop(lease.job_id, None)
        of_worker = self._of_worker[lease.worker]
        del of_worker[lease.job_id]
        if not of_worker:
            del self._of_worker[lease.worker]

    def forget_ended(self, running: Iterable[tuple[str, int]], since_ms: int) -> None:
        """Drops what was granted before a walk over all running records began, and was not among them."""
        seen = dict(running)
        for lease in list(self._leases.values()):
            if lease.verdict is None and lease.granted_ms < since_ms and seen.get(lease.job_id) != lease.token:
                self.drop(lease)
