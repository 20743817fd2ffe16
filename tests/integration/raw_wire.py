"""Raw connections of the wire for tests: the bytes of each message are written here."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from holdfast import limits
from holdfast.server.ledger_server import LedgerServer
from holdfast.wire import messages as wire
from holdfast.wire.frames import FrameReader, framed
from holdfast.wire.methods import WireMethod
from tests.integration.http_client import PATIENCE_S


class RawWire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._frames = FrameReader(limits.MESSAGE_BYTES_MAX)
        self._received: list[bytes] = []

    def send(self, data: bytes) -> None:
        """Sends bytes as they are."""
        self.writer.write(data)

    def call(self, call_id: int, method: WireMethod[Any, Any] | str, request: object) -> None:
        """Sends a call; the request may be anything."""
        name = method if isinstance(method, str) else method.name
        self.send(framed(wire.encode((call_id, name, request))))

    async def open(
        self,
        purpose: str = wire.CALLS,
        token: str = "",
        versions: tuple[int, int] = (1, 1),
        shard: int = wire.NO_SHARD,
    ) -> wire.Opened:
        """Sends an opening, and returns the server's."""
        self.send(wire.MAGIC + framed(wire.encode(wire.Opening(*versions, purpose, token, "test", shard))))
        return wire.decode_opened(await self.message())

    async def message(self) -> bytes:
        """The next message; `EOFError` if the server has closed the connection."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._received:
                data = await self._reader.read(65_536)
                if not data:
                    raise EOFError
                self._received += self._frames.feed(data)
        return self._received.pop(0)

    async def reply(self) -> wire.Reply:
        """The next reply to a call."""
        return wire.decode_reply(await self.message())

    async def failure(self) -> tuple[int, wire.WireFailure]:
        """The next reply, which is an error, with its call's id."""
        reply = await self.reply()
        assert reply.kind == wire.ERROR, reply
        return reply.id, wire.decode_failure(reply.body)

    async def rest(self) -> bytes:
        """All bytes until the server closes the connection."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self._reader.read()
            except ConnectionResetError:
                return b""


@asynccontextmanager
async def raw_wire(address: str, context: ssl.SSLContext | None = None) -> AsyncIterator[RawWire]:
    """A connection to `host:port` for the duration of a block."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        yield RawWire(reader, writer)
    finally:
        writer.transport.abort()


@asynccontextmanager
async def raw_socket(path: str) -> AsyncIterator[RawWire]:
    """A connection to the socket of a directory for the duration of a block."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        yield RawWire(reader, writer)
    finally:
        writer.transport.abort()


def wire_address(server: LedgerServer) -> str:
    """The address of the wire of a server, with HTTP or without it."""
    return server.addresses.get("wire") or server.addresses["http"]
