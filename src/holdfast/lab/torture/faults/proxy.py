"""A road between processes that can be made bad: a TCP proxy on loopback."""

import asyncio
from functools import partial
from typing import Self

from holdfast.lab.torture.faults.road import Ends, Road
from holdfast.lab.torture.faults.weather import Traffic, Weather, reset
from holdfast.lab.torture.ports import Harm

_LIMIT_BYTES = 1 << 16


class TcpProxy:
    """Whoever connects to `address` reaches the other end. Implements the port `Proxy`; lives in one event loop."""

    def __init__(self, upstream_host: str, upstream_port: int) -> None:
        """`open` makes one that listens."""
        self.address = ""
        self.traffic = Traffic()
        self._upstream = (upstream_host, upstream_port)
        self._weather = Weather()
        self._roads: set[Road] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @classmethod
    async def open(cls, upstream_host: str, upstream_port: int, port: int = 0, host: str = "127.0.0.1") -> Self:
        """Listens; nobody needs to be at the other end yet."""
        made = cls(upstream_host, upstream_port)
        made._server = await asyncio.start_server(made._accept, host, port, limit=_LIMIT_BYTES)
        bound_host, bound_port = made._server.sockets[0].getsockname()[:2]
        made.address = f"{bound_host}:{bound_port}"
        return made

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.address.rpartition(":")[2])

    @property
    def connections(self) -> int:
        """How many there are now."""
        return len(self._roads)

    async def close(self) -> None:
        """Resets what is left and listens no more; raises what went wrong inside, if anything did."""
        assert self._server is not None, "open comes first"
        self._server.close()
        self.cut()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        if self.traffic.bugs:
            raise self.traffic.bugs[0]

    def delay(self, seconds: float) -> None:
        """Every byte takes so much longer, both ways; 0 mends it."""
        self._weather.delay_s = seconds

    def cut_after_send(self, *, is_on: bool) -> None:
        """What is said arrives, and the connection is reset before any answer comes back."""
        self._weather.is_cutting_answers = is_on

    def duplicate(self, *, is_on: bool) -> None:
        """New connections reach the other end twice; mended, all are single again."""
        self._weather.is_doubling = is_on
        if not is_on:
            for road in tuple(self._roads):
                road.leave_twin()

    def swallow(self, *, towards_server: bool, towards_client: bool) -> None:
        """Bytes of a direction vanish while the connection stays open; both False mends it for new connections."""
        self._weather.is_swallowing_to_server = towards_server
        self._weather.is_swallowing_to_client = towards_client
        if not self._weather.is_swallowing:
            for road in tuple(self._roads):
                road.mended()

    def cut(self) -> None:
        """Resets every connection there is."""
        self.traffic.harm.cut += len(self._roads)
        for road in tuple(self._roads):
            road.cut()

    def harm(self) -> Harm:
        """What has been done so far."""
        return self.traffic.harm

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.traffic.connections += 1
        task = asyncio.get_running_loop().create_task(self._lead((reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(partial(self._over, writer))

    def _over(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not writer.is_closing():  # it was canceled before its first step
            reset(writer)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.traffic.bugs.append(error)

    async def _lead(self, client: Ends) -> None:
        server = twin = None
        try:
            server = await self._reach()
            if self._weather.is_doubling:
                twin = await self._reach()
                self.traffic.doubled += 1
        except OSError:
            # As it would be without a proxy: nobody is there.
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
        road = Road(client, server, twin, self._weather, self.traffic)
        self._roads.add(road)
        try:
            await road.run()
        finally:
            self._roads.discard(road)

    async def _reach(self) -> Ends:
        return await asyncio.open_connection(*self._upstream, limit=_LIMIT_BYTES)
