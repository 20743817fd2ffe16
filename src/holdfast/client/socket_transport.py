"""A conversation over the Unix socket of a directory. It does not reconnect: open a new one after a loss."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Self

from google.protobuf.message import Message

from holdfast.client.pending_calls import PendingCalls
from holdfast.client.socket_connection import SocketLine, connect, unreachable
from holdfast.client.transport import Response, raise_refusal
from holdfast.errors import UnavailableError
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto.frames import CONVERSATION

#: Reading from the socket pauses when more messages of a stream than this are unread.
_UNREAD_MAX = 64


class SocketCarrier:
    """Concurrent calls over one connection; each stream has a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending = PendingCalls()
        self._line: SocketLine | None = None
        self._is_closed = False

    @classmethod
    async def connect(cls, path: Path) -> Self:
        """Connects to the socket; `UnavailableError` (UNREACHABLE) if no server listens there."""
        carrier = cls(path)
        carrier._line = await connect(path, CONVERSATION, carrier._take, carrier._lose)
        return carrier

    @property
    def is_connected(self) -> bool:
        """Whether the connection is open."""
        return self._line is not None and self._line.is_open

    async def lost(self) -> None:
        """Returns when the connection has ended."""
        if self._line is not None:
            await self._line.closed.wait()

    async def call(self, method: str, request: Message, response: type[Response], deadline_s: float | None) -> Response:
        """Sends a request and returns the response. A lost connection: CONNECTION_LOST, for later calls UNREACHABLE."""
        line = self._line
        if line is None or not line.is_open:
            raise unreachable(
                self._path, "the connection was lost" if not self._is_closed else "the connection was closed"
            )
        if not line.is_writable:
            await line.writable()
        reply = await self._pending.call(self._send, method, request.SerializeToString(), deadline_s)
        raise_refusal(reply)
        return response.FromString(reply.body)

    async def stream(self, method: str, request: Message, response: type[Response]) -> AsyncGenerator[Response, None]:
        """Yields the responses; a slow reader slows down the server for this stream only."""
        unread = _Unread()
        line = await connect(self._path, CONVERSATION, unread.take, unread.end)
        unread.line = line
        try:
            line.send(pb.Call(id=1, method=method, body=request.SerializeToString()).SerializeToString())
            while (reply := await unread.next()).more:
                yield response.FromString(reply.body)
            raise_refusal(reply)
        finally:
            line.drop()

    async def close(self) -> None:
        """Closes the connection."""
        self._is_closed = True
        if self._line is not None and self._line.is_open:
            self._line.close()
            await self._line.closed.wait()

    def _send(self, call: pb.Call) -> None:
        if self._line is not None:
            self._line.send(call.SerializeToString())

    def _take(self, message: bytes) -> None:
        self._pending.settle(pb.Reply.FromString(message))

    def _lose(self) -> None:
        self._pending.fail(_lost(self._line))


def _lost(line: SocketLine | None) -> UnavailableError:
    why = line.problem if line is not None else "it was never opened"
    return UnavailableError(f"the connection to the server was lost: {why}", reason="CONNECTION_LOST")


class _Unread:
    """Messages of one stream that were received but not read yet."""

    def __init__(self) -> None:
        self._replies: deque[pb.Reply] = deque()
        self._wake = asyncio.Event()
        self._is_over = False
        self.line: SocketLine | None = None

    def take(self, message: bytes) -> None:
        self._replies.append(pb.Reply.FromString(message))
        if len(self._replies) > _UNREAD_MAX and self.line is not None:
            self.line.hold("unread", is_held=True)
        self._wake.set()

    def end(self) -> None:
        self._is_over = True
        self._wake.set()

    async def next(self) -> pb.Reply:
        while not self._replies:
            if self._is_over:
                raise _lost(self.line)
            self._wake.clear()
            await self._wake.wait()
        reply = self._replies.popleft()
        if len(self._replies) < _UNREAD_MAX // 2 and self.line is not None:
            self.line.hold("unread", is_held=False)
        return reply
