"""The Unix socket of a directory: conversations and workers on the same machine, without gRPC.

A connection with malformed data is dropped and logged; others are not affected. The server that holds the journal's
lock may replace the socket file of a dead server.
"""

import asyncio
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

from google.protobuf.message import DecodeError

from holdfast import limits
from holdfast.errors import FailedPreconditionError, HoldfastError, UnavailableError
from holdfast.observe.logs import get_logger
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto.frames import CONVERSATION, WORKER, FramedProtocol, MalformedFrameError
from holdfast.server.backend import Backend
from holdfast.server.calls import Table, table
from holdfast.server.refusal_log import SOCKET_PEER
from holdfast.server.socket_conversations import CallTalk, Talk, WorkTalk

#: The socket's file in a data directory.
SOCKET_NAME = "holdfast.sock"
#: Access for the owner of the directory only.
_MODE = 0o600
_BACKLOG = 1_024


class SocketServer:
    """Serves one backend on one path. `start`, then `stop`."""

    def __init__(self, backend: Backend, welcome: pb.Welcome) -> None:
        self._work = backend.work
        self._welcome = welcome
        self._table: Table = table(backend)
        self._connections: dict[_Connection, None] = {}
        self._server: asyncio.AbstractServer | None = None
        self._path = Path()
        self._empty = asyncio.Event()

    async def start(self, path: Path) -> None:
        """Listens. `FailedPreconditionError` if the path is no socket, `UnavailableError` if it cannot be used."""
        self._path = path
        try:
            listener = _listener(path)
        except OSError as error:
            message = f"cannot listen on {str(path)!r}: {error.strerror or error}"
            raise UnavailableError(message, reason="SOCKET_UNUSABLE") from error
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self.connection, sock=listener, backlog=_BACKLOG)

    def connection(self) -> FramedProtocol:
        """Returns the server's end of a new connection, for any transport."""
        return _Connection(self)

    def dismiss(self) -> None:
        """Notifies workers, and answers calls in progress."""
        for connection in list(self._connections):
            connection.stop()

    async def stop(self, grace_s: float = 2.0) -> None:
        """Notifies workers, answers calls in progress until the grace ends, then closes and removes the file."""
        if self._server is None:
            return
        self._path.unlink(missing_ok=True)
        self._server.close()
        self.dismiss()
        if self._connections:
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self._empty.wait()
        for connection in list(self._connections):
            connection.drop()
        await self._server.wait_closed()

    # -- for connections

    def joined(self, connection: "_Connection") -> None:
        self._connections[connection] = None
        self._empty.clear()

    def left(self, connection: "_Connection") -> None:
        self._connections.pop(connection, None)
        if not self._connections:
            self._empty.set()

    def talk(self, kind: bytes, connection: "_Connection") -> Talk | None:
        """Returns the protocol that the first byte of a client selects; None if it is unknown."""
        if kind == CONVERSATION:
            return CallTalk(self._table, connection)
        if kind == WORKER and self._work is not None:
            return WorkTalk(self._work, self._welcome, connection)
        return None


def _listener(path: Path) -> socket.socket:
    """Returns a bound socket that only this user can connect to, from the beginning.

    It is bound through the open directory, because the path of a socket is limited to 107 bytes.
    """
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _make_room(path)
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
        path.chmod(_MODE)  # before it listens, so that no other user can have connected
        listener.setblocking(False)  # noqa: FBT003 - its only parameter
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(folder)
    return listener


def _make_room(path: Path) -> None:
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            message = f"{str(path)!r} is in the way: expected a socket, found another file; move it elsewhere"
            raise FailedPreconditionError(message, reason="SOCKET_IN_THE_WAY")
        path.unlink()


class _Connection(FramedProtocol):
    """The server's end of one connection."""

    def __init__(self, server: SocketServer) -> None:
        super().__init__(limits.MESSAGE_BYTES_MAX)
        self._server = server
        self._talk: Talk | None = None

    def stop(self) -> None:
        """Ends the connection, because the server is stopping."""
        if self._talk is None:
            self.drop()
        else:
            self._talk.stop()

    def take(self, message: bytes) -> None:
        """Handles a complete message."""
        if self._talk is not None and self.is_open:
            try:
                self._talk.take(message)
            except DecodeError:
                self._refuse(f"expected a message, got {len(message)} bytes that cannot be decoded")
            except HoldfastError as error:
                self._refuse(error.message)

    def _refuse(self, message: str) -> None:
        self.spoiled(MalformedFrameError(message))
        self.drop()

    def spoiled(self, error: MalformedFrameError) -> None:
        """Logs why the connection is dropped."""
        get_logger().warning("connection_dropped", peer=SOCKET_PEER, message=str(error))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Registers the connection."""
        super().connection_made(transport)
        self._server.joined(self)

    def data_received(self, data: bytes) -> None:
        """Selects the protocol by the first byte; frames follow it."""
        if self._talk is None:
            self._talk = self._server.talk(data[:1], self)
            if self._talk is None:
                self._refuse(f"expected C or W as the first byte, got {data[:1]!r}")
                return
            data = data[1:]
        super().data_received(data)

    def pause_writing(self) -> None:
        """Stops reading from a client that does not read its replies."""
        super().pause_writing()
        self.hold("unread replies", is_held=True)

    def resume_writing(self) -> None:
        """Resumes reading once the client has caught up."""
        super().resume_writing()
        self.hold("unread replies", is_held=False)

    def eof_received(self) -> bool:
        """Closes the connection after sending pending output: a client that has finished sending awaits no replies."""
        if not self._reader.is_between:
            self.spoiled(MalformedFrameError("the connection ended in the middle of a message"))
        self.close()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the protocol, because the client is gone."""
        super().connection_lost(exc)
        if self._talk is not None:
            self._talk.lose()
        self._server.left(self)
