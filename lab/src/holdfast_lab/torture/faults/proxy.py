"""A TCP proxy on loopback whose connections can be disturbed."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Self

from holdfast_lab.torture.faults.link_condition import LinkCondition, Traffic, reset
from holdfast_lab.torture.faults.proxy_connection import Ends, ProxyConnection
from holdfast_lab.torture.ports import ProxyEffects

_LIMIT_BYTES = 1 << 16
#: Returns the address to forward to, for every new connection; an OSError means that nothing listens at the moment.
Upstream = Callable[[], tuple[str, int]]


class TcpProxy:
    """Forwards connections to `address`; implements the port `Proxy`. Lives in one event loop."""

    def __init__(self, upstream: Upstream) -> None:
        """Use `open` to create one that listens."""
        self.address = ""
        self.traffic = Traffic()
        self._upstream = upstream
        self._condition = LinkCondition()
        self._connections: set[ProxyConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @classmethod
    async def open(cls, upstream_host: str, upstream_port: int, port: int = 0, host: str = "127.0.0.1") -> Self:
        """Starts to listen; the target need not listen yet."""
        return await cls.open_to(lambda: (upstream_host, upstream_port), port, host)

    @classmethod
    async def open_to(cls, upstream: Upstream, port: int = 0, host: str = "127.0.0.1") -> Self:
        """Starts to listen, for a target whose address may change."""
        made = cls(upstream)
        made._server = await asyncio.start_server(made._accept, host, port, limit=_LIMIT_BYTES)
        bound_host, bound_port = made._server.sockets[0].getsockname()[:2]
        made.address = f"{bound_host}:{bound_port}"
        return made

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.address.rpartition(":")[2])

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    async def close(self) -> None:
        """Stops listening and resets the remaining connections; raises the first internal error, if any."""
        assert self._server is not None, "call open first"
        self._server.close()
        self.cut()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        if self.traffic.bugs:
            raise self.traffic.bugs[0]

    def delay(self, seconds: float) -> None:
        """Delays every byte by this time, both ways; 0 ends the delay."""
        self._condition.delay_s = seconds

    def cut_after_send(self, *, is_on: bool) -> None:
        """Delivers requests, and resets the connection before any response arrives."""
        self._condition.is_cutting_answers = is_on

    def duplicate(self, *, is_on: bool) -> None:
        """Delivers the bytes of new connections twice; when turned off, existing duplicates end too."""
        self._condition.is_doubling = is_on
        if not is_on:
            for connection in tuple(self._connections):
                connection.leave_twin()

    def swallow(self, *, towards_server: bool, towards_client: bool) -> None:
        """Drops the bytes of a direction while connections stay open; both False ends it for new connections."""
        self._condition.is_swallowing_to_server = towards_server
        self._condition.is_swallowing_to_client = towards_client
        if not self._condition.is_swallowing:
            for connection in tuple(self._connections):
                connection.mended()

    def cut(self) -> None:
        """Resets all open connections."""
        self.traffic.effects.cut += len(self._connections)
        for connection in tuple(self._connections):
            connection.cut()

    def effects(self) -> ProxyEffects:
        """The effects so far."""
        return self.traffic.effects

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.traffic.connections += 1
        task = asyncio.get_running_loop().create_task(self._lead((reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(partial(self._over, writer))

    def _over(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not writer.is_closing():  # it was cancelled before its first step
            reset(writer)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.traffic.bugs.append(error)

    async def _lead(self, client: Ends) -> None:
        server = twin = None
        try:
            server = await self._reach()
            if self._condition.is_doubling:
                twin = await self._reach()
                self.traffic.doubled += 1
        except OSError:
            # As without a proxy: the target does not listen.
            self.traffic.refused += 1
            for ends in (client, server):
                if ends is not None:
                    reset(ends[1])
            return
        except asyncio.CancelledError:
            for ends in (client, server, twin):
                if ends is not None:
                    reset(ends[1])
            raise
        connection = ProxyConnection(client, server, twin, self._condition, self.traffic)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    async def _reach(self) -> Ends:
        return await asyncio.open_connection(*self._upstream(), limit=_LIMIT_BYTES)
