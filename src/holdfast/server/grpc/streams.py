"""The streams of one service that are open: served one by one, ended together."""

from typing import Protocol

from holdfast.errors import HoldfastError
from holdfast.server.grpc.status import Context, refuse


class OpenStream(Protocol):
    """One stream."""

    async def serve(self) -> None:
        """Until either side ends it; raises what the client is to be told."""
        ...

    def stop(self) -> None:
        """Ends it soon, in good order."""
        ...


class Streams:
    """All of one service."""

    def __init__(self, method: str) -> None:
        self._method = method
        self._open: set[OpenStream] = set()

    async def serve(self, stream: OpenStream, context: Context) -> None:
        """Serves one to its end; an error ends it with a status."""
        self._open.add(stream)
        try:
            await stream.serve()
        except HoldfastError as error:
            await refuse(context, error, self._method)
        finally:
            self._open.discard(stream)

    def stop(self) -> None:
        """Ends every one that is open."""
        for stream in self._open:
            stream.stop()
