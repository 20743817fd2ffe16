"""`WorkApi` on ZooKeeper: every session of a worker is a ZooKeeper session."""

from collections.abc import Awaitable, Callable

from holdfast.ports import Introduction
from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection, connect
from holdfast.topologies.zookeeper.backend.worker_nodes import this_process
from holdfast.topologies.zookeeper.backend.worker_session import BidSession
from holdfast.worker.introduction_checks import check_names

#: Opens the connection of a session, given hosts, root and session timeout in milliseconds.
Connect = Callable[[str, str, int], Awaitable[EnsembleConnection]]


def connecting_with(credentials: str) -> Connect:
    """Returns a function that opens guarded connections with these credentials, `user:password` or none."""

    async def guarded(hosts: str, root: str, session_ms: int) -> EnsembleConnection:
        return await connect(hosts, root, session_ms=session_ms, credentials=credentials, is_guarded=True)

    return guarded


class BidWork:
    """Opens sessions that bid for posted jobs."""

    def __init__(
        self, hosts: str, root: str, *, session_ms: int, connecting: Connect | None = None, process: str = ""
    ) -> None:
        self._hosts, self._root = hosts, root
        self._session_ms = session_ms
        self._connecting = connecting or connecting_with("")
        self._process = process or this_process()

    async def open(self, introduction: Introduction) -> BidSession:
        """Opens a session; `UnavailableError` if no server answers."""
        check_names(introduction)
        connection = await self._connecting(self._hosts, self._root, self._session_ms)
        session = BidSession(connection, introduction, self._session_ms, self._process)
        try:
            await session.start()
        except BaseException:
            await session.close()
            raise
        return session
