"""Recovers the jobs of lost workers: they are queued again, or end.

Invariants: a job is recovered only if its worker's node is gone and its bid is gone; the bid is checked after the
record was read, under the version that the transaction checks. So a worker that reconnects in between either keeps its
job or loses it, never both. A node under `held` is deleted only if the job's record, as read, is not held by the
worker: without that node no steward would find the job.
"""

import asyncio

from holdfast.core.lifecycle import RUNNING
from holdfast.observe.logs import get_logger
from holdfast.topologies.zookeeper.backend.kazoo_bridge import WatchEvent
from holdfast.topologies.zookeeper.backend.node_changes import Decided, NodeChanges, left_alone_if_damaged
from holdfast.topologies.zookeeper.backend.paths import worker_named
from holdfast.topologies.zookeeper.backend.records import VersionedRecord
from holdfast.topologies.zookeeper.backend.transactions import Check, Delete

#: Maximum number of concurrent recoveries.
_AT_A_TIME = 64
_REASON = "its worker was lost"


class LostWorkerRecovery:
    """Recovers the jobs of workers whose nodes are gone."""

    def __init__(self, node_changes: NodeChanges) -> None:
        self._node_changes = node_changes
        self._connection, self._paths = node_changes.connection, node_changes.paths

    async def look(self, watch_event: WatchEvent) -> None:
        """Makes one pass; the event is set when a worker connects or leaves."""
        alive = self._connection.children(self._paths.workers, watch_event)
        held = self._connection.children(self._paths.held)
        gone = set(await held or []).difference(await alive or [])
        for name in sorted(gone):
            await self._recover(worker_named(name))

    async def _recover(self, worker: str) -> None:
        path, asked = self._paths.held_by(worker), self._paths.asked_of(worker)
        stat = await self._connection.exists(path)
        if stat is None or await self._connection.exists(self._paths.worker(worker)) is not None:
            return
        jobs = await self._connection.children(path) or []
        room = asyncio.Semaphore(_AT_A_TIME)
        await asyncio.gather(*(self._recover_job(worker, job_id, room) for job_id in jobs))
        if jobs:
            get_logger().info("worker_lost", worker_id=worker, jobs=len(jobs))
        for name in await self._connection.children(asked) or []:
            self._connection.transact([Check(path, stat.version), Delete(f"{asked}/{name}")])
        # Like the transactions above, refused if the worker is back; also refused if a child is left.
        self._connection.transact([Delete(path, stat.version), Delete(asked)])

    async def _recover_job(self, worker: str, job_id: str, room: asyncio.Semaphore) -> None:
        async def decide(stored: VersionedRecord) -> Decided:
            if stored.record.state != RUNNING or stored.record.worker != worker:
                return None
            if await self._connection.exists(self._paths.bid(job_id)) is not None:
                return None
            now_ms = self._connection.now_ms()
            return self._node_changes.transactions.give_back(stored, _REASON, now_ms, is_spent=True, has_bid=False)

        async with room:
            with left_alone_if_damaged(job_id):
                stored = await self._node_changes.read(job_id)
                if stored is None or stored.record.state != RUNNING or stored.record.worker != worker:
                    self._connection.transact(
                        self._node_changes.transactions.strike_out(stored, job_id=job_id, worker=worker)
                    )
                    return
                await self._node_changes.change(stored, decide, _REASON)
