"""Starts a worker's session: takes the worker's node, and resolves the leases of its earlier sessions.

Invariants: of two sessions with one worker id, the newer one has the worker's node, and has changed the version of the
node under `held`. Every bid checks that version, so the older session cannot bid any more. A lease that the newer
session does not name goes back. That counts as a loss if the older session belonged to another process, because the job
may have ended that process; a process that is still running has only lost a reply.
"""

from holdfast.core.lifecycle import RUNNING
from holdfast.errors import UnavailableError
from holdfast.ports import Introduction
from holdfast.topologies.zookeeper.backend.node_changes import Decided, NodeChanges
from holdfast.topologies.zookeeper.backend.records import VersionedRecord
from holdfast.topologies.zookeeper.backend.transactions import Check, Create, Delete, Put, RefusedError, Step
from holdfast.topologies.zookeeper.backend.worker_nodes import kind_of, kind_said

_TRIES_MAX = 20
_REASON = "its worker reconnected without it"


class SessionStart:
    """The start of one session."""

    def __init__(self, node_changes: NodeChanges, introduction: Introduction, process: str) -> None:
        self._node_changes = node_changes
        self._connection, self._paths = node_changes.connection, node_changes.paths
        self._introduction = introduction
        self._worker = introduction.worker_id
        self._process = process.encode()
        #: Whether the previous session belonged to this process.
        self._is_known = False

    async def come(self) -> Check:
        """Takes the worker's node, from an older session if there is one; returns the check for every bid."""
        paths, said = self._paths, kind_said(kind_of(self._introduction))
        node, held, asked = paths.worker(self._worker), paths.held_by(self._worker), paths.asked_of(self._worker)
        for _ in range(_TRIES_MAX):
            self._connection.sync()
            before = await self._connection.get(held)
            steps: list[Step] = [Put(held, self._process) if before is not None else Create(held, self._process)]
            steps += [Delete(node)] if await self._connection.exists(node) else []
            steps += [Create(node, said, ephemeral=True)]
            steps += [] if await self._connection.exists(asked) else [Create(asked)]
            try:
                done = await self._connection.transact(steps)
            except RefusedError:
                continue
            self._is_known = before is not None and before.data == self._process
            stat = done.stats[0]
            return Check(held, stat.version if stat is not None else 0)
        raise UnavailableError(f"too many sessions of {self._worker!r} start at once; try again", reason="CONTENDED")

    async def sort_out(self) -> dict[int, VersionedRecord]:
        """Returns the named leases that are still valid, by token, and gives all others of this worker back."""
        named = self._introduction.held
        holds: dict[int, VersionedRecord] = {}
        for job_id in await self._connection.children(self._paths.held_by(self._worker)) or []:
            stored = await self._node_changes.read(job_id)
            if stored is None or stored.record.state != RUNNING or stored.record.worker != self._worker:
                self._connection.transact(
                    self._node_changes.transactions.strike_out(stored, job_id=job_id, worker=self._worker)
                )
            elif named.get(stored.record.token) == job_id:
                adopted = await self._adopt(stored)
                if adopted is not None:
                    holds[adopted.record.token] = adopted
            else:
                await self._give_back(stored)
        return holds

    async def _adopt(self, stored: VersionedRecord) -> VersionedRecord | None:
        token = stored.record.token

        async def decide(stored: VersionedRecord) -> Decided:
            record = stored.record
            if record.state != RUNNING or record.worker != self._worker or record.token != token:
                return None
            is_there = await self._connection.exists(self._paths.bid(record.id)) is not None
            return record, self._node_changes.transactions.adopt(stored, is_bid_there=is_there)

        if await self._node_changes.change(stored, decide) is None:
            return None
        return await self._node_changes.read(stored.record.id)

    async def _give_back(self, stored: VersionedRecord) -> None:
        async def decide(stored: VersionedRecord) -> Decided:
            record = stored.record
            if record.state != RUNNING or record.worker != self._worker:
                return None
            has_bid = await self._connection.exists(self._paths.bid(record.id)) is not None
            now_ms = self._connection.now_ms()
            is_spent = not self._is_known
            return self._node_changes.transactions.give_back(
                stored, _REASON, now_ms, is_spent=is_spent, has_bid=has_bid
            )

        await self._node_changes.change(stored, decide, _REASON)
