"""Calls over the Unix socket of a server that may be started again: connected anew whenever the line was lost."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from google.protobuf.message import Message

from holdfast.client.socket_transport import SocketCarrier
from holdfast.client.transport import Response


class LastingCarrier:
    """One path; nothing is opened before the first call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._carrier: SocketCarrier | None = None
        self._connecting = asyncio.Lock()

    @property
    def line(self) -> object | None:
        """The connection that is open now, if one is: another one may lead to another server."""
        return self._carrier if self._carrier is not None and self._carrier.is_connected else None

    async def call(self, method: str, request: Message, response: type[Response], deadline_s: float | None) -> Response:
        """The answer; `UnavailableError` if nobody serves the socket now."""
        carrier = self._carrier
        if carrier is None or not carrier.is_connected:
            carrier = await self._connected()
        return await carrier.call(method, request, response, deadline_s)

    async def stream(self, method: str, request: Message, response: type[Response]) -> AsyncGenerator[Response, None]:
        """The answers, over a connection of their own."""
        async with aclosing(SocketCarrier(self._path).stream(method, request, response)) as answers:
            async for answer in answers:
                yield answer

    async def close(self) -> None:
        """Ends the connection; a call after it opens another."""
        if self._carrier is not None:
            await self._carrier.close()

    async def _connected(self) -> SocketCarrier:
        async with self._connecting:
            if self._carrier is None or not self._carrier.is_connected:
                self._carrier = await SocketCarrier.connect(self._path)
            return self._carrier
