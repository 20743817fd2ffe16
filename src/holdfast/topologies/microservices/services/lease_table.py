"""The leases on running jobs that this process knows of.

The table need not survive the process: the job service stores the worker and the token of every running job. A lease
that is not in the table is adopted from there, with the full lease time. So the table may lack a lease, or contain one
that has ended elsewhere. A report still cannot count twice, because the job service checks the token.

Invariants: one lease per job, with the largest known token; a lease that is over (it has a verdict) is never extended
again, and stays until its job is settled. All times are served time: they stand still while this process does, so that
its own pause costs no worker a lease.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.core.model import Now
from holdfast.proto import taskqueue_internal_pb2 as pb


@dataclass(frozen=True, slots=True)
class LeaseVerdict:
    """The reason why a lease is over; `is_spent` counts against the job's budget for losses."""

    reason: str
    is_spent: bool


#: The worker id of this service itself, when it takes a job only to end it; no worker has this id.
NO_WORKER = ""

EXPIRED = LeaseVerdict("expired", is_spent=True)
NOT_RUNNING = LeaseVerdict("not-running", is_spent=False)
RELEASED = LeaseVerdict("released", is_spent=False)
LEFT = LeaseVerdict("disconnected", is_spent=True)
#: The job went back to QUEUED, and only has to be enqueued.
RETURNED = LeaseVerdict("returned", is_spent=False)


@dataclass(slots=True, eq=False)
class HeldJob:
    """A lease: the right of one worker to run one job."""

    job_id: str
    token: int
    worker: str
    granted_ms: int
    deadline_ms: int
    cancel_requested: bool = False
    #: Whether its worker was sent it, or has named it.
    is_confirmed: bool = False
    verdict: LeaseVerdict | None = None
    #: Time of the next try to settle its job, once it is over.
    retry_ms: int = 0
    #: Held to end the lease, so that a report and a loss of the same job are handled one after the other.
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
        """Returns the lease on a job, over or not."""
        return self._leases.get(job_id)

    def of_worker(self, worker: str) -> list[HeldJob]:
        """Returns the leases of a worker that are not over."""
        return [lease for lease in self._of_worker.get(worker, {}).values() if lease.verdict is None]

    def held_by(self, worker: str, job_id: str, token: int) -> HeldJob | None:
        """Returns the lease that a worker names, if the worker has it; token 0 means any token."""
        lease = self._leases.get(job_id)
        if lease is None or lease.verdict or lease.worker != worker or token not in {0, lease.token}:
            return None
        return lease

    # -- adding

    def grant(self, job_id: str, token: int, worker: str, now: Now) -> HeldJob:
        """Adds a lease that is about to be sent to its worker."""
        lease = self._put(job_id, token, worker, now)
        lease.is_confirmed = True
        return lease

    def adopt(self, record: pb.GetJobRecordResponse, now: Now) -> HeldJob:
        """Returns the lease of a running job's record: a known one is kept, another one begins now."""
        lease = self._put(record.summary.job_id, record.token, record.worker_id, now)
        if lease.token == record.token:
            lease.cancel_requested |= record.summary.cancel_requested
        return lease

    def _put(self, job_id: str, token: int, worker: str, now: Now) -> HeldJob:
        known = self._leases.get(job_id)
        if known is not None:
            if known.token >= token:  # the same lease, or an outdated message
                return known
            self.drop(known)
        lease = HeldJob(job_id, token, worker, now.served_ms, now.served_ms + self.lease_ms)
        self._leases[job_id] = lease
        self._of_worker.setdefault(worker, {})[job_id] = lease
        self._earliest_ms = min(self._earliest_ms, lease.deadline_ms)
        return lease

    # -- extending

    def extend(self, worker: str, named: Mapping[str, int] | None, now: Now) -> list[HeldJob]:
        """Extends the leases that a heartbeat names, and returns the others; None extends all."""
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

    # -- ending

    def judge(self, lease: HeldJob, verdict: LeaseVerdict) -> None:
        """Marks the lease as over; its job will be settled."""
        if lease in self and lease.verdict is None:
            lease.verdict = verdict
            self._over[lease.job_id] = lease

    def expire(self, now: Now) -> None:
        """Marks leases past their deadline as over."""
        if now.served_ms < self._earliest_ms:
            return
        running = [lease for lease in self._leases.values() if lease.verdict is None]
        for lease in running:
            if lease.deadline_ms <= now.served_ms:
                self.judge(lease, EXPIRED)
        deadlines = [lease.deadline_ms for lease in running if lease.verdict is None]
        self._earliest_ms = min(deadlines, default=now.served_ms + self.lease_ms)

    def over(self) -> list[HeldJob]:
        """Returns the leases that are over, and whose jobs must be settled."""
        return list(self._over.values())

    def drop(self, lease: HeldJob) -> None:
        """Removes a lease whose job is settled."""
        if lease not in self:
            return
        del self._leases[lease.job_id]
        self._over.pop(lease.job_id, None)
        of_worker = self._of_worker[lease.worker]
        del of_worker[lease.job_id]
        if not of_worker:
            del self._of_worker[lease.worker]

    def forget_ended(self, running: Iterable[tuple[str, int]], since_ms: int) -> None:
        """Drops leases that were granted before a round began, and that the round did not find."""
        seen = dict(running)
        for lease in list(self._leases.values()):
            if lease.verdict is None and lease.granted_ms < since_ms and seen.get(lease.job_id) != lease.token:
                self.drop(lease)
