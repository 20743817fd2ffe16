"""Ends of wire connections without a network: the test delivers the bytes, and reads those that were sent."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.errors import UnavailableError
from holdfast.server.wire.connection import WireConnection, WireService
from holdfast.wire.messages import NO_SHARD

P = TypeVar("P", bound=asyncio.BaseProtocol)

PEER = "127.0.0.1:50000"


class MemoryTransport(asyncio.Transport):
    """The transport of one protocol. Like a real one, it delivers nothing after it was closed."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._sent = bytearray()
        #: Called with the bytes that the protocol sends, instead of keeping them.
        self.on_sent: Callable[[bytes], None] = self._keep
        self.on_closed: Callable[[], None] = _nothing
        self.is_over = False

    def deliver(self, data: bytes) -> None:
        """Passes bytes to the protocol."""
        if data and not self.is_over:
            self._protocol.data_received(data)

    def take_sent(self) -> bytes:
        """The bytes that the protocol has sent since the last call."""
        sent, self._sent = bytes(self._sent), bytearray()
        return sent

    def lose(self) -> None:
        """Ends the connection from the other side, unless it has ended."""
        if not self.is_over:
            self._protocol.eof_received()
            self.close()

    def write(self, data: Any) -> None:  # noqa: ANN401 - as its port says
        if not self.is_over:
            self.on_sent(bytes(data))

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """Does nothing: the test decides when bytes arrive."""

    def resume_reading(self) -> None:
        """Does nothing, like `pause_reading`."""

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        if not self.is_over:
            self.is_over = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)
            self.on_closed()

    def abort(self) -> None:
        self.close()

    def _keep(self, data: bytes) -> None:
        self._sent += data


class ServedEnd(MemoryTransport):
    """A connection to a server, as its client sees it."""

    def __init__(self, service: WireService, peer: str = PEER) -> None:
        self.connection: WireConnection = service.connection(peer)
        super().__init__(self.connection)
        self.connection.connection_made(self)


class MemoryEndpoint:
    """An endpoint of a client whose connections lead to `answers`, which gets the client's transport."""

    token = ""
    shard = NO_SHARD
    missed_port = 0

    def __init__(self, answers: Callable[[MemoryTransport], None]) -> None:
        self._answers = answers

    async def connect(self, made: Callable[[], P]) -> P:
        """Connects the protocol."""
        protocol = made()
        assert isinstance(protocol, asyncio.Protocol)
        transport = MemoryTransport(protocol)
        protocol.connection_made(transport)
        self._answers(transport)
        return protocol

    def connect_blocking(self) -> socket.socket:
        """Refuses: connections in memory belong to an event loop."""
        raise NotImplementedError

    def redirect(self) -> bool:
        return False

    def follow(self, leader: str) -> bool:
        del leader
        return False

    def unreachable(self, why: str) -> UnavailableError:
        return UnavailableError(f"no server answers: {why}", reason="UNREACHABLE")


def joined(service: WireService) -> MemoryEndpoint:
    """An endpoint of this server."""

    def join(near: MemoryTransport) -> None:
        loop = asyncio.get_running_loop()
        far = ServedEnd(service)
        first = near.take_sent()
        near.on_sent = lambda data: _soon(loop, far, data)
        far.on_sent = lambda data: _soon(loop, near, data)
        near.on_closed = lambda: _end_soon(loop, far)
        far.on_closed = lambda: _end_soon(loop, near)
        near.on_sent(first)

    return MemoryEndpoint(join)


def _soon(loop: asyncio.AbstractEventLoop, to: MemoryTransport, data: bytes) -> None:
    loop.call_soon(to.deliver, data)


def _end_soon(loop: asyncio.AbstractEventLoop, to: MemoryTransport) -> None:
    loop.call_soon(to.lose)


def _nothing() -> None:
    """Does nothing."""
