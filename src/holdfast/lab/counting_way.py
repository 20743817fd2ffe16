"""A port that leads to another one, and counts what goes there."""

import asyncio
import contextlib

#: A ping of ZooKeeper's protocol: its length, its number and its kind.
PING_BYTES = 12


class CountingWay:
    """Bytes that clients sent since the last time they were forgotten."""

    def __init__(self, there: str) -> None:
        host, _, port = there.partition(":")
        self._there = (host, int(port))
        self._server: asyncio.Server | None = None
        self._ends: list[asyncio.StreamWriter] = []
        self._leading: set[asyncio.Task[None]] = set()
        self.sent_bytes = 0

    async def open(self) -> str:
        """Where clients connect instead."""
        self._server = await asyncio.start_server(self._lead, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return f"127.0.0.1:{port}"

    def forget(self) -> None:
        """Counts from here."""
        self.sent_bytes = 0

    async def close(self) -> None:
        """Cuts whoever is on the way."""
        assert self._server is not None
        self._server.close()
        for end in self._ends:
            end.transport.abort()
        await asyncio.gather(*self._leading)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._leading.add(task)
        there_reader, there_writer = await asyncio.open_connection(*self._there)
        self._ends += [writer, there_writer]
        await asyncio.gather(
            self._carry(reader, there_writer, is_counted=True), self._carry(there_reader, writer, is_counted=False)
        )

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_counted: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                self.sent_bytes += len(data) if is_counted else 0
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
