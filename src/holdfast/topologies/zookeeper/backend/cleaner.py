"""Removes jobs whose retention is over, and empty nodes.

Invariants: all nodes of a job are removed together or not at all; only empty nodes are removed, because ZooKeeper
refuses to delete others.
"""

import asyncio

from holdfast.core.lifecycle import TERMINAL
from holdfast.topologies.zookeeper.backend.node_changes import NodeChanges, left_alone_if_damaged
from holdfast.topologies.zookeeper.backend.paths import due_of, minute_start_ms
from holdfast.topologies.zookeeper.backend.records import NodeRetention
from holdfast.topologies.zookeeper.backend.transactions import Delete, Step

_AT_A_TIME = 64
_MINUTE_MS = 60_000
#: Interval between passes over the index.
_INDEX_MS = 60 * _MINUTE_MS


class NodeCleaner:
    """Removes expired jobs and empty nodes, in passes."""

    def __init__(self, node_changes: NodeChanges) -> None:
        self._node_changes = node_changes
        self._connection, self._paths = node_changes.connection, node_changes.paths
        #: Time of the last pass over the index, by the ensemble's clock.
        self._indexed_ms = 0
        #: Lanes and lines that were empty in the last pass.
        self._empty: set[str] = set()

    async def look(self, retention: NodeRetention) -> None:
        """Makes one pass."""
        # Earlier versions put FAILED jobs under `ended` too; they expire like all others there.
        await self._forget_ended(self._paths.ended, retention.retain_ms)
        await self._forget_ended(self._paths.failed, retention.retain_failed_ms)
        if self._connection.now_ms() - self._indexed_ms >= _INDEX_MS:
            await self._drop_index(retention)
            self._indexed_ms = self._connection.now_ms()
        await self._drop_empty()

    async def _forget_ended(self, top: str, retain_ms: int) -> None:
        for minute in await self._minutes(top, retain_ms):
            notes = [f"{minute}/{name}" for name in await self._connection.children(minute) or []]
            for start in range(0, len(notes), _AT_A_TIME):
                await asyncio.gather(*map(self._forget, notes[start : start + _AT_A_TIME]))
            self._connection.transact([Delete(minute)])

    async def _minutes(self, top: str, retain_ms: int) -> list[str]:
        """Returns the nodes of minutes that ended at least `retain_ms` ago, oldest first."""
        before_ms = self._connection.now_ms() - retain_ms
        names = sorted(await self._connection.children(top) or [])
        return [f"{top}/{name}" for name in names if minute_start_ms(name) + _MINUTE_MS <= before_ms]

    async def _forget(self, note: str) -> None:
        job_id = due_of(note.rpartition("/")[2])[1]
        with left_alone_if_damaged(job_id):
            stored = await self._node_changes.read(job_id)
            if stored is not None and stored.record.state in TERMINAL:
                await self._node_changes.forget(stored, note)

    async def _drop_index(self, retention: NodeRetention) -> None:
        """Deletes empty minutes of the index.

        Many minutes keep a FAILED job for days, so their number of children is read before a delete is tried.
        """
        minutes = await self._minutes(self._paths.index, retention.retain_ms)
        for start in range(0, len(minutes), _AT_A_TIME):
            part = minutes[start : start + _AT_A_TIME]
            stats = await asyncio.gather(*map(self._connection.exists, part))
            for minute, stat in zip(part, stats, strict=True):
                if stat is not None and not stat.children:
                    self._connection.transact([Delete(minute)])  # refused if a job was added

    async def _drop_empty(self) -> None:
        """Deletes lanes and lines that were empty in two passes in a row; they are created again when needed."""
        paths, empty = self._paths, set[str]()
        for top in (paths.waiting, paths.lines):
            for name in await self._connection.children(top) or []:
                path = f"{top}/{name}"
                below = sorted(await self._connection.children(path) or [])
                stats = await asyncio.gather(*(self._connection.exists(f"{path}/{each}") for each in below))
                is_used = any(stat is not None and stat.children for stat in stats) or (top == paths.lines and below)
                if is_used:
                    continue
                empty.add(path)
                if path in self._empty:
                    steps: list[Step] = [Delete(f"{path}/{each}") for each in below]
                    self._connection.transact([*steps, Delete(path)])
        self._empty = empty
