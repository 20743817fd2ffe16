"""`WorkApi` over the Unix socket of a directory."""

import asyncio
from collections import deque
from pathlib import Path

from holdfast.client.socket_connection import SocketLine, connect
from holdfast.client.transport import error_named
from holdfast.client.work_session import StreamSession
from holdfast.errors import AbortedError, HoldfastError, InvalidArgumentError, UnavailableError
from holdfast.ports import Introduction
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto.frames import WORKER


class SocketWork:
    """Opens sessions with the server of a socket."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def open(self, introduction: Introduction) -> StreamSession:
        """Connects and sends hello; `UnavailableError` if no server answers."""
        line = _WorkLine()
        await line.connect(self._path)
        session = StreamSession(line)
        try:
            await session.start(introduction)
        except BaseException:
            await session.close()
            raise
        return session


class _WorkLine:
    """One connection, with a queue of received messages."""

    def __init__(self) -> None:
        self._line: SocketLine
        self._messages: deque[pb.CoordinatorMessage] = deque()
        self._news = asyncio.Event()
        self._ending: HoldfastError | None = None

    async def connect(self, path: Path) -> None:
        self._line = await connect(path, WORKER, self._take, self._lose)

    async def send(self, message: pb.WorkerMessage) -> None:
        self._line.send(message.SerializeToString())
        if not self._line.is_writable:
            await self._line.writable()
        if not self._line.is_open:
            raise self._ended()

    async def receive(self) -> pb.CoordinatorMessage:
        while not self._messages:
            if self._ending is not None or not self._line.is_open:
                raise self._ended()
            self._news.clear()
            await self._news.wait()
        return self._messages.popleft()

    async def finish(self) -> None:
        self._line.finish()

    def drop(self) -> None:
        self._line.drop()

    async def close(self) -> None:
        self._line.drop()
        await self._line.closed.wait()

    def _take(self, message: bytes) -> None:
        decoded = pb.CoordinatorMessage.FromString(message)
        if decoded.HasField("ending"):
            self._ending = _error(decoded.ending)
        else:
            self._messages.append(decoded)
        self._news.set()

    def _lose(self) -> None:
        self._news.set()

    def _ended(self) -> HoldfastError:
        return self._ending or UnavailableError(
            f"the session has ended: {self._line.problem}", reason="CONNECTION_LOST"
        )


def _error(ending: pb.Ending) -> HoldfastError:
    """Keeps errors that a new session cannot fix; all others become `UnavailableError`, which is retried."""
    known = error_named(ending.code, ending.reason, ending.message)
    if isinstance(known, AbortedError | InvalidArgumentError):
        return known
    return UnavailableError(known.message, reason=known.reason)
