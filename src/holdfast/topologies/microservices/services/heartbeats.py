"""Heartbeats: who lives, what it still runs, what it should stop, and what it no longer has.

A heartbeat without a list comes from a worker that knows only the frozen fields: it keeps whatever it holds. One with
a list keeps what it names. What it does not name goes back, unless it is so young that its assignment may still be on
its way. A worker that has just begun lost whatever else is under its name, and each costs its job a loss. A lease that
is named and not known here is looked up: this process may have been replaced since.

Leases are extended before any other service is asked, so that none of them can cost a worker its leases.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from holdfast.core.lifecycle import RUNNING
from holdfast.core.model import Now
from holdfast.errors import Code, HoldfastError
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto.enums import job_status
from holdfast.topologies.microservices.services.lease_reconciler import Rounds
from holdfast.topologies.microservices.services.lease_table import (
    LEFT,
    NOT_RUNNING,
    RELEASED,
    HeldJob,
    LeaseTable,
    LeaseVerdict,
)
from holdfast.topologies.microservices.services.outcomes import Settler

#: A grant younger than this may still be on its way to a worker whose heartbeat does not name it.
FETCH_GRACE_MS = 2_000
#: How long the answer waits for other services; a worker waits no longer than a second.
_PATIENCE_S = 0.3
#: Records that are looked up at a time, however many a heartbeat names.
_TOGETHER = 32

Named = tuple[str, int]


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """What a worker is told: ids of jobs that should stop, and leases that it names and no longer has."""

    cancels: list[str]
    revoked: list[Named]


class Heartbeats:
    """Takes signs of life. `see_to` begins to see to leases that are over, and gives the tasks that do."""

    def __init__(
        self,
        table: LeaseTable,
        settler: Settler,
        rounds: Rounds,
        now: Callable[[], Now],
        see_to: Callable[[], Iterable[asyncio.Task[None]]],
    ) -> None:
        self._table = table
        self._settler = settler
        self._rounds = rounds
        self._now = now
        self._see_to = see_to

    async def hear(self, worker: str, request: pb.WorkerHeartbeatRequest) -> HeartbeatReply:
        """Everything that one heartbeat says; raises if a worker arrives and it cannot be known what it lost."""
        named: list[Named] | None = None
        if request.HasField("running"):
            named = [(job.job_id, job.token) for job in request.running.jobs]
        missing = self._table.extend(worker, None if named is None else dict(named), self._now())
        if request.is_arriving:
            await self._rounds.fresh()
            missing = self._table.extend(worker, None if named is None else dict(named), self._now())
        elif not self._rounds.is_walked or (self._rounds.is_short and self._table.of_worker(worker)):
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
        if is_arriving:  # its process ended with them, as far as can be known: a job that kills its worker must end
            self._judge(missing, LEFT)
            return
        young_ms = self._now().served_ms - FETCH_GRACE_MS
        self._judge([lease for lease in missing if lease.granted_ms <= young_ms], NOT_RUNNING)

    def _judge(self, leases: list[HeldJob], verdict: LeaseVerdict) -> None:
        for lease in leases:
            self._table.judge(lease, verdict)

    async def _look_up(self, worker: str, named: Sequence[Named]) -> list[Named]:
        """Adopts what is named and not known here; gives what the worker no longer has."""
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
            record = await self._settler.record(job_id)
        except HoldfastError as error:
            # It may well have it, and who knows will be asked again; but what cannot be an id is no job.
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
        """A cancel that was accepted before this heartbeat rides on its answer, as long as its owner is quick."""
        looking = asyncio.ensure_future(self._rounds.fresh())
        await asyncio.wait([looking], timeout=_PATIENCE_S)
        if looking.done():
            looking.exception()  # the next round will tell
        looking.cancel()
