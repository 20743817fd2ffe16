"""One connection to the Unix socket of a directory."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from holdfast import limits
from holdfast.errors import UnavailableError
from holdfast.proto.frames import FramedProtocol, MalformedFrameError


class SocketLine(FramedProtocol):
    """The client's end. Calls `take_message` for each message, and `lost` once, when the connection has ended."""

    def __init__(self, kind: bytes, take_message: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        super().__init__(limits.MESSAGE_BYTES_MAX)
        self._kind = kind
        self._lost = lost
        self._take_message = take_message
        self.problem = ""
        self.closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Sends the byte that selects the kind of connection."""
        super().connection_made(transport)
        assert self._transport is not None
        self._transport.write(self._kind)

    def take(self, message: bytes) -> None:
        """Passes the message to the owner."""
        self._take_message(message)

    def spoiled(self, error: MalformedFrameError) -> None:
        """Keeps the error as the reason of the loss."""
        self.problem = str(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Notifies the owner."""
        super().connection_lost(exc)
        self.problem = self.problem or (str(exc) if exc else "the server closed the connection")
        self.closed.set()
        self._lost()


async def connect(
    path: Path, kind: bytes, take_message: Callable[[bytes], None], lost: Callable[[], None]
) -> SocketLine:
    """Connects to a socket; `UnavailableError` with the reason UNREACHABLE if no server listens there.

    The connection goes through the open directory, because the path of a socket is limited to 107 bytes.
    """
    loop = asyncio.get_running_loop()
    try:
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            address = f"/proc/self/fd/{folder}/{path.name}"
            _, line = await loop.create_unix_connection(lambda: SocketLine(kind, take_message, lost), address)
        finally:
            os.close(folder)
    except OSError as error:
        raise unreachable(path, error.strerror or str(error)) from error
    return line


def unreachable(path: Path, why: str) -> UnavailableError:
    """The error for a socket without a server."""
    return UnavailableError(f"no server is running for {str(path.parent)!r}: {why}", reason="UNREACHABLE")
