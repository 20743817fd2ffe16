"""A line of sessions: the first one acts, and each other one watches its predecessor, so an event wakes one.

Invariants: a place is an ephemeral node, so it disappears with its session; a place whose creation had no reply is
found again by the session id in its name.
"""

import contextlib

from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection
from holdfast.topologies.zookeeper.backend.kazoo_bridge import WatchEvent
from holdfast.topologies.zookeeper.backend.paths import sequence_of
from holdfast.topologies.zookeeper.backend.transactions import Create, Delete, RefusedError, StepFailure


class LeaderElection:
    """One line, and this session's place in it."""

    def __init__(self, connection: EnsembleConnection, path: str) -> None:
        self._connection = connection
        self._path = path
        #: Whether a place may exist.
        self._has_place = False

    @property
    def is_in(self) -> bool:
        return self._has_place

    async def is_first(self, watch_event: WatchEvent) -> bool:
        """Returns whether this session is first; joins if needed. The event is set when its predecessor leaves."""
        while True:
            mine, others = await self._places()
            if not mine:
                await self._join()
                continue
            before = [name for name in others if sequence_of(name) < sequence_of(mine[0])]
            if not before:
                return True
            last = max(before, key=sequence_of)
            if await self._connection.exists(f"{self._path}/{last}", watch_event) is not None:
                return False

    async def leave(self) -> None:
        """Leaves the line, so that the next session becomes first."""
        if not self._has_place:
            return
        mine, _ = await self._places()
        for name in mine:
            with contextlib.suppress(RefusedError):
                await self._connection.transact([Delete(f"{self._path}/{name}")])
        self._has_place = False

    async def _places(self) -> tuple[list[str], list[str]]:
        own = self._prefix()
        names = await self._connection.children(self._path) or []
        mine = sorted((name for name in names if name.startswith(own)), key=sequence_of)
        return mine, [name for name in names if not name.startswith(own)]

    async def _join(self) -> None:
        self._has_place = True
        place = Create(f"{self._path}/{self._prefix()}", ephemeral=True, sequential=True)
        try:
            await self._connection.transact([place])
        except RefusedError as error:
            if error.why is not StepFailure.MISSING:
                raise
            with contextlib.suppress(RefusedError):
                await self._connection.transact([Create(self._path)])

    def _prefix(self) -> str:
        return f"{self._connection.session_id & (1 << 64) - 1:016x}-"
