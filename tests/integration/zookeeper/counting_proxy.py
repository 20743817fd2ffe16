"""A proxy to a server that counts the requests of clients and can be cut."""

import asyncio
import contextlib

#: The xid by which the client library marks a ping.
_PING_XID = -2


class CountingWay:
    """A port that forwards to the server's."""

    def __init__(self, there: str) -> None:
        host, _, port = there.partition(":")
        self._there = (host, int(port))
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()
        self.pings = 0
        #: All requests except pings and those that begin a session.
        self.requests = 0

    async def open(self) -> str:
        """Starts to listen and returns the address for clients."""
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return f"127.0.0.1:{port}"

    async def close(self) -> None:
        """Stops listening and breaks every connection."""
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Breaks every connection; new ones are accepted."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def until_pings(self, count: int) -> None:
        """Waits for this number of further pings."""
        wanted = self.pings + count
        async with self._changed:
            await self._changed.wait_for(lambda: self.pings >= wanted)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        there_reader, there_writer = await asyncio.open_connection(*self._there)
        self._writers |= {writer, there_writer}
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await asyncio.gather(self._ask(reader, there_writer), self._answer(there_reader, writer))
        for one in (writer, there_writer):
            one.transport.abort()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_first = True
        while True:
            size = await reader.readexactly(4)
            frame = await reader.readexactly(int.from_bytes(size, "big"))
            if not is_first:
                await self._count(int.from_bytes(frame[:4], "big", signed=True))
            is_first = False
            writer.write(size + frame)
            await writer.drain()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.transport.abort()

    async def _count(self, xid: int) -> None:
        if xid == _PING_XID:
            self.pings += 1
        else:
            self.requests += 1
        async with self._changed:
            self._changed.notify_all()
