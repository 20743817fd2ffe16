"""`WorkApi` over nodes: every session of a worker is a session of the ensemble."""

from collections.abc import Awaitable, Callable

from holdfast.backends.introducing import check_names
from holdfast.backends.ports import Introduction
from holdfast.backends.zookeeper.connection import Connection, connect
from holdfast.backends.zookeeper.introducing import this_process
from holdfast.backends.zookeeper.session import BidSession

#: How a session gets its connection: hosts, root, and how long the session may be silent.
Connect = Callable[[str, str, int], Awaitable[Connection]]


async def _connect(hosts: str, root: str, session_ms: int) -> Connection:
    return await connect(hosts, root, session_ms=session_ms, is_guarded=True)


class BidWork:
    """Where a worker gets its work: from whatever is posted."""

    def __init__(
        self, hosts: str, root: str, *, session_ms: int, connecting: Connect = _connect, process: str = ""
    ) -> None:
        self._hosts, self._root = hosts, root
        self._session_ms = session_ms
        self._connecting = connecting
        self._process = process or this_process()

    async def open(self, introduction: Introduction) -> BidSession:
        """Begins a session; `UnavailableError` if nobody answers."""
        check_names(introduction)
        connection = await self._connecting(self._hosts, self._root, self._session_ms)
        session = BidSession(connection, introduction, self._session_ms, self._process)
        try:
            await session.start()
        except BaseException:
            await session.close()
            raise
        return session
