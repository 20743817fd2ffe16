"""Calls over the Unix socket of a server that may restart; a lost connection is opened again."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from google.protobuf.message import Message

from holdfast.client.socket_transport import SocketCarrier
from holdfast.client.transport import Response


class LastingCarrier:
    """A connection to one socket, opened by the first call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._carrier: SocketCarrier | None = None
        self._connecting = asyncio.Lock()

    @property
    def line(self) -> object | None:
        """The connection that is open now, if any; the next one may lead to another server."""
        return self._carrier if self._carrier is not None and self._carrier.is_connected else None

    async def call(self, method: str, request: Message, response: type[Response], deadline_s: float | None) -> Response:
        """Sends a request and returns the response; `UnavailableError` if no server listens on the socket."""
        carrier = self._carrier
        if carrier is None or not carrier.is_connected:
            carrier = await self._connected()
        return await carrier.call(method, request, response, deadline_s)

    async def stream(self, method: str, request: Message, response: type[Response]) -> AsyncGenerator[Response, None]:
        """Yields the responses, over a separate connection."""
        async with aclosing(SocketCarrier(self._path).stream(method, request, response)) as answers:
            async for answer in answers:
                yield answer

    async def close(self) -> None:
        """Closes the connection; a later call opens another one."""
        if self._carrier is not None:
            await self._carrier.close()

    async def _connected(self) -> SocketCarrier:
        async with self._connecting:
            if self._carrier is None or not self._carrier.is_connected:
                self._carrier = await SocketCarrier.connect(self._path)
            return self._carrier
