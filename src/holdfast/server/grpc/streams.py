"""The open streams of one service: served individually, ended together."""

from typing import Protocol

from holdfast.errors import HoldfastError
from holdfast.server.grpc.status import Context, refuse


class OpenStream(Protocol):
    """One open stream."""

    async def serve(self) -> None:
        """Serves until either side ends the stream; raises the error that the client gets."""
        ...

    def stop(self) -> None:
        """Ends the stream soon, in an orderly way."""
        ...


class Streams:
    """All open streams of one service."""

    def __init__(self, method: str) -> None:
        self._method = method
        self._open: set[OpenStream] = set()

    async def serve(self, stream: OpenStream, context: Context) -> None:
        """Serves one stream to its end; an error ends it with a status."""
        self._open.add(stream)
        try:
            await stream.serve()
        except HoldfastError as error:
            await refuse(context, error, self._method)
        finally:
            self._open.discard(stream)

    def stop(self) -> None:
        """Ends every open stream."""
        for stream in self._open:
            stream.stop()
