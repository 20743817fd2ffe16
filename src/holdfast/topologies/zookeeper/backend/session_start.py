"""A worker's session begins: it takes its place, and what an earlier session of the same worker held is sorted out.

Invariants: of two sessions under one id the newer one has the node, and with it the version of the note under `held`
that every bid checks, so the older one cannot bid any more; what the newer one does not name goes back. That is a
loss if the older one was another process's, because it may be what ended that; a process that lives has only lost an
answer.
"""

from holdfast.core.lifecycle import RUNNING
from holdfast.errors import UnavailableError
from holdfast.ports import Introduction
from holdfast.topologies.zookeeper.backend.node_changes import Changing, Decided
from holdfast.topologies.zookeeper.backend.records import Kept
from holdfast.topologies.zookeeper.backend.transactions import Check, Create, Delete, Put, RefusedError, Step
from holdfast.topologies.zookeeper.backend.worker_nodes import kind_of, kind_said

_TRIES_MAX = 20
_REASON = "its worker came back without it"


class Arrival:
    """One session that comes."""

    def __init__(self, changing: Changing, introduction: Introduction, process: str) -> None:
        self._changing = changing
        self._connection, self._paths = changing.connection, changing.paths
        self._introduction = introduction
        self._worker = introduction.worker_id
        self._process = process.encode()
        #: Whether this very process had the session before.
        self._is_known = False

    async def come(self) -> Check:
        """Takes the worker's node, from an older session if it must; what every bid is to check."""
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
        raise UnavailableError(f"too many sessions of {self._worker!r} come at once; try again", reason="CONTENDED")

    async def sort_out(self) -> dict[int, Kept]:
        """The leases that were named and hold, by token; all others of this worker go back."""
        named = self._introduction.held
        holds: dict[int, Kept] = {}
        for job_id in await self._connection.children(self._paths.held_by(self._worker)) or []:
            kept = await self._changing.read(job_id)
            if kept is None or kept.record.state != RUNNING or kept.record.worker != self._worker:
                self._connection.transact(self._changing.moves.strike_out(kept, job_id=job_id, worker=self._worker))
            elif named.get(kept.record.token) == job_id:
                adopted = await self._adopt(kept)
                if adopted is not None:
                    holds[adopted.record.token] = adopted
            else:
                await self._give_back(kept)
        return holds

    async def _adopt(self, kept: Kept) -> Kept | None:
        token = kept.record.token

        async def decide(kept: Kept) -> Decided:
            record = kept.record
            if record.state != RUNNING or record.worker != self._worker or record.token != token:
                return None
            is_there = await self._connection.exists(self._paths.bid(record.id)) is not None
            return record, self._changing.moves.adopt(kept, is_bid_there=is_there)

        if await self._changing.change(kept, decide) is None:
            return None
        return await self._changing.read(kept.record.id)

    async def _give_back(self, kept: Kept) -> None:
        async def decide(kept: Kept) -> Decided:
            record = kept.record
            if record.state != RUNNING or record.worker != self._worker:
                return None
            has_bid = await self._connection.exists(self._paths.bid(record.id)) is not None
            now_ms = self._connection.now_ms()
            is_spent = not self._is_known
            return self._changing.moves.give_back(kept, _REASON, now_ms, is_spent=is_spent, has_bid=has_bid)

        await self._changing.change(kept, decide, _REASON)
