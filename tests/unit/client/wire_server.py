"""A server of the wire that a test scripts: it accepts one connection after another, and says what the test wants."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.client.endpoints import UnixEndpoint
from holdfast.wire.frames import framed
from holdfast.wire.messages import MAGIC, VERSION, Call, Opened, Opening, decode_call, decode_opening, encode


class Peer:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def opening(self) -> Opening:
        """Reads the opening of the client."""
        assert await self.reader.readexactly(len(MAGIC)) == MAGIC
        return decode_opening(await self.message())

    async def open(self) -> Opening:
        """Accepts the client."""
        opening = await self.opening()
        self.send(Opened(VERSION))
        return opening

    async def call(self) -> Call:
        """Reads the next call."""
        return decode_call(await self.message())

    async def message(self) -> bytes:
        (length,) = struct.unpack(">I", await self.reader.readexactly(4))
        return await self.reader.readexactly(length)

    def send(self, *messages: object) -> None:
        """Sends messages in one piece."""
        self.writer.write(b"".join(framed(encode(message)) for message in messages))


Script = Callable[[Peer], Coroutine[object, object, None]]


@asynccontextmanager
async def scripted(folder: Path, script: Script) -> AsyncIterator[UnixEndpoint]:
    """Runs the script for each connection, which ends with it; a failed script fails the test."""
    path, running = folder / "s.sock", set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            await script(Peer(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            """The client has disconnected, or the test is over."""
        finally:
            writer.transport.abort()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield UnixEndpoint(path)
    finally:
        server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
