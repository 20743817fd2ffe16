"""One connection to the Unix socket of a directory."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from holdfast import limits
from holdfast.errors import UnavailableError
from holdfast.proto.frames import FramedProtocol, MalformedFrameError


class SocketLine(FramedProtocol):
    """The client's end. `take_message` gets what comes, `lost` is called once, when nothing more will."""

    def __init__(self, kind: bytes, take_message: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        super().__init__(limits.MESSAGE_BYTES_MAX)
        self._kind = kind
        self._lost = lost
        self._take_message = take_message
        self.problem = ""
        self.closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Says what it is for."""
        super().connection_made(transport)
        assert self._transport is not None
        self._transport.write(self._kind)

    def take(self, message: bytes) -> None:
        """Hands it to the owner."""
        self._take_message(message)

    def spoiled(self, error: MalformedFrameError) -> None:
        """Whoever asks why it ended is told."""
        self.problem = str(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tells the owner."""
        super().connection_lost(exc)
        self.problem = self.problem or (str(exc) if exc else "the server closed it")
        self.closed.set()
        self._lost()


async def connect(
    path: Path, kind: bytes, take_message: Callable[[bytes], None], lost: Callable[[], None]
) -> SocketLine:
    """A line to whoever listens there; `UnavailableError` with the reason UNREACHABLE if nobody does.

    The connection goes through the open directory, because the path of a socket may have only 107 bytes.
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
    """Nobody answers there."""
    return UnavailableError(f"nobody answers at {str(path)!r}: {why}", reason="UNREACHABLE")
