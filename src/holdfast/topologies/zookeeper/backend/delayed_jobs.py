"""Jobs that are not due yet.

Invariants: one transaction takes a job out of the delayed jobs and posts it, never before it is due by the ensemble's
clock.
"""

import asyncio

from holdfast.core.lifecycle import QUEUED
from holdfast.topologies.zookeeper.backend.kazoo_bridge import WatchEvent
from holdfast.topologies.zookeeper.backend.node_changes import Decided, NodeChanges, left_alone_if_damaged
from holdfast.topologies.zookeeper.backend.paths import due_of, minute_start_ms
from holdfast.topologies.zookeeper.backend.records import DELAYED, VersionedRecord
from holdfast.topologies.zookeeper.backend.transactions import Delete

_AT_A_TIME = 64
_MINUTE_MS = 60_000
_LONG_S = 3_600.0


class DelayedJobs:
    """Posts delayed jobs when they are due."""

    def __init__(self, node_changes: NodeChanges) -> None:
        self._node_changes = node_changes
        self._connection, self._paths = node_changes.connection, node_changes.paths

    async def look(self, watch_event: WatchEvent) -> float:
        """Posts due jobs, and returns the seconds until the next one is due.

        The event is set when a job is added that may be due earlier.
        """
        next_ms: int | None = None
        for minute in sorted(await self._connection.children(self._paths.delayed, watch_event) or []):
            start_ms, now_ms = minute_start_ms(minute), self._connection.now_ms()
            if start_ms > now_ms:
                next_ms = start_ms if next_ms is None else min(next_ms, start_ms)
                break
            path = f"{self._paths.delayed}/{minute}"
            left = await self._post_due(path, sorted(await self._connection.children(path, watch_event) or []))
            if left is not None:
                next_ms = left if next_ms is None else min(next_ms, left)
            elif start_ms + _MINUTE_MS <= now_ms:
                self._connection.transact([Delete(path)])  # refused if a job was added
        if next_ms is None:
            return _LONG_S
        return max(0.0, (next_ms - self._connection.now_ms() + 1) / 1_000)

    async def _post_due(self, path: str, names: list[str]) -> int | None:
        """Posts the due jobs, and returns when the first of the others is due."""
        now_ms = self._connection.now_ms()
        due = [name for name in names if due_of(name)[0] <= now_ms]
        for start in range(0, len(due), _AT_A_TIME):
            part = due[start : start + _AT_A_TIME]
            await asyncio.gather(*(self._post(path, name) for name in part))
        return due_of(names[len(due)])[0] if len(due) < len(names) else None

    async def _post(self, path: str, name: str) -> None:
        due_ms, job_id = due_of(name)

        async def decide(stored: VersionedRecord) -> Decided:
            record = stored.record
            if record.state != QUEUED or record.bucket != DELAYED or record.not_before_ms != due_ms:
                return None
            return self._node_changes.transactions.due(stored, await self._node_changes.lanes.bucket(record.lane))

        with left_alone_if_damaged(job_id):
            stored = await self._node_changes.read(job_id)
            if stored is None or await self._node_changes.change(stored, decide) is None:
                self._connection.transact([Delete(f"{path}/{name}")])
