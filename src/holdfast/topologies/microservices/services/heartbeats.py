"""Heartbeats: extend the leases of a worker, and return cancels and revoked leases.

A heartbeat without a list comes from a worker that knows only the frozen fields: it extends all leases of the worker.
One with a list extends the leases that it names. A lease that is not named is returned, unless it is so young that its
assignment may still be on its way. A worker that has just started has lost its other leases, and each counts as a loss.
A named lease that is unknown here is looked up, because this process may have been restarted.

Leases are extended before any other service is called, so that a slow service cannot cost a worker its leases.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from holdfast.core.lifecycle import RUNNING
from holdfast.core.model import Now
from holdfast.errors import Code, HoldfastError
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto.enums import job_status
from holdfast.topologies.microservices.services.lease_reconciler import LeaseReconciler
from holdfast.topologies.microservices.services.lease_table import (
    LEFT,
    NOT_RUNNING,
    RELEASED,
    HeldJob,
    LeaseTable,
    LeaseVerdict,
)
from holdfast.topologies.microservices.services.outcomes import OutcomeWriter

#: A grant younger than this may still be on its way to a worker whose heartbeat does not name it.
FETCH_GRACE_MS = 2_000
#: Maximum time that the reply waits for other services; a worker waits for at most a second.
_PATIENCE_S = 0.3
#: Maximum number of concurrent lookups of records.
_TOGETHER = 32

Named = tuple[str, int]


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The reply to a worker: ids of jobs to stop, and named leases that it no longer has."""

    cancels: list[str]
    revoked: list[Named]


class Heartbeats:
    """Handles heartbeats. `see_to` starts tasks that settle the leases that are over, and returns them."""

    def __init__(
        self,
        table: LeaseTable,
        outcome_writer: OutcomeWriter,
        reconciler: LeaseReconciler,
        now: Callable[[], Now],
        see_to: Callable[[], Iterable[asyncio.Task[None]]],
    ) -> None:
        self._table = table
        self._outcome_writer = outcome_writer
        self._reconciler = reconciler
        self._now = now
        self._see_to = see_to

    async def hear(self, worker: str, request: pb.WorkerHeartbeatRequest) -> HeartbeatReply:
        """Handles one heartbeat; raises if a worker arrives and its lost leases cannot be determined."""
        named: list[Named] | None = None
        if request.HasField("running"):
            named = [(job.job_id, job.token) for job in request.running.jobs]
        missing = self._table.extend(worker, None if named is None else dict(named), self._now())
        if request.is_arriving:
            await self._reconciler.fresh()
            missing = self._table.extend(worker, None if named is None else dict(named), self._now())
        elif not self._reconciler.is_walked or (self._reconciler.is_short and self._table.of_worker(worker)):
            await self._look_around()
        revoked = await self._look_up(worker, named or ())
        await self._release(worker, [(job.job_id, job.token) for job in request.released])
        if request.is_leaving:
            self._judge(self._table.of_worker(worker), LEFT)
        else:
            self._judge_missing(missing, is_arriving=request.is_arriving)
        tasks = list(self._see_to())
        if tasks:
            await asyncio.wait(tasks, timeout=_PATIENCE_S)
        cancels = [lease.job_id for lease in self._table.of_worker(worker) if lease.cancel_requested]
        return HeartbeatReply(cancels, revoked)

    def _judge_missing(self, missing: list[HeldJob], *, is_arriving: bool) -> None:
        if is_arriving:  # its process may have died with them: a loss, so that a job that kills workers ends
            self._judge(missing, LEFT)
            return
        young_ms = self._now().served_ms - FETCH_GRACE_MS
        self._judge([lease for lease in missing if lease.granted_ms <= young_ms], NOT_RUNNING)

    def _judge(self, leases: list[HeldJob], verdict: LeaseVerdict) -> None:
        for lease in leases:
            self._table.judge(lease, verdict)

    async def _look_up(self, worker: str, named: Sequence[Named]) -> list[Named]:
        """Adopts named leases that are unknown here; returns those that the worker no longer has."""
        unknown = [job for job in named if self._table.held_by(worker, *job) is None]
        revoked: list[Named] = []
        for start in range(0, len(unknown), _TOGETHER):
            part = unknown[start : start + _TOGETHER]
            have = await asyncio.gather(*(self._has(worker, *job) for job in part))
            revoked += [job for job, has in zip(part, have, strict=True) if not has]
        return revoked

    async def _has(self, worker: str, job_id: str, token: int) -> bool:
        known = self._table.get(job_id)
        if known is not None and (known.verdict or 0 < token <= known.token):
            return self._table.held_by(worker, job_id, token) is not None
        try:
            record = await self._outcome_writer.record(job_id)
        except HoldfastError as error:
            # The worker may have it, and its next heartbeat is checked again; an invalid id belongs to no job.
            return error.code is not Code.INVALID_ARGUMENT
        if record is None or record.summary.status != job_status(RUNNING) or token not in {0, record.token}:
            return False
        if record.worker_id != worker:
            return False
        self._table.adopt(record, self._now())
        self._table.extend(worker, {job_id: token}, self._now())
        return True

    async def _release(self, worker: str, released: list[Named]) -> None:
        for job in released:
            if self._table.held_by(worker, *job) is not None or await self._has(worker, *job):
                lease = self._table.held_by(worker, *job)
                if lease is not None:
                    self._table.judge(lease, RELEASED)

    async def _look_around(self) -> None:
        """Starts a round, so that the reply includes every earlier cancel if the job service answers quickly."""
        looking = asyncio.ensure_future(self._reconciler.fresh())
        await asyncio.wait([looking], timeout=_PATIENCE_S)
        if looking.done():
            looking.exception()  # retrieve the exception; the next round tries again
        looking.cancel()
