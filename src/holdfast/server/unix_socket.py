"""The Unix socket of a directory: clients and workers on the same machine, over the wire.

A connection with malformed data is dropped and logged; others are not affected. The server that holds the journal's
lock may replace the socket file of a dead server.
"""

import asyncio
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

from holdfast.errors import FailedPreconditionError, UnavailableError
from holdfast.ledger.session_messages import LeaseTerms
from holdfast.server.backend import Backend
from holdfast.server.descriptors import ConnectionBudget
from holdfast.server.wire.connection import WireConnection, WireService

#: The socket's file in a data directory.
SOCKET_NAME = "holdfast.sock"
#: Access for the owner of the directory only.
_MODE = 0o600
_BACKLOG = 1_024


class SocketServer:
    """Serves one backend on one path. `start`, then `stop`."""

    def __init__(self, backend: Backend, terms: LeaseTerms, budget: ConnectionBudget | None = None) -> None:
        """`terms` are sent to workers; `budget` is that of the process, if it has other ports."""
        self._service = WireService(backend, terms, budget=budget)
        self._server: asyncio.AbstractServer | None = None
        self._path = Path()

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

    def connection(self) -> WireConnection:
        """Returns the server's end of a new connection, for any transport."""
        return self._service.connection()

    @property
    def is_used(self) -> bool:
        """Whether clients or workers are connected."""
        return self._service.is_used

    def dismiss(self) -> None:
        """Notifies workers, and answers calls in progress."""
        self._service.dismiss()

    async def stop(self, grace_s: float = 2.0) -> None:
        """Notifies workers, answers calls in progress until the grace ends, then closes and removes the file."""
        if self._server is None:
            return
        self._path.unlink(missing_ok=True)
        self._server.close()
        await self._service.stop(grace_s)
        await self._server.wait_closed()


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
