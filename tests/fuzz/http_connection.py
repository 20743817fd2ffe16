"""One connection to the HTTP gateway without a socket; the test passes the bytes in any pieces.

For each response the status is kept, and the reason if it is a problem document. A `100 Continue` does not count as a
response, because it depends on the bytes that have arrived by then.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, NamedTuple
from unittest.mock import patch

from holdfast import limits
from holdfast.server.http import openapi
from holdfast.server.http.application import Application
from holdfast.server.http.browser_security import BrowserShield
from holdfast.server.http.protocol import HttpConnection, SharedServerState
from holdfast.server.http.routing import Route
from holdfast.server.http.system import Probes
from tests.fuzz.world import World

_CONTINUE, _ERROR = 100, 400
#: Limit of polls, a millisecond apart, for a condition that may never hold.
_LOOKS = 20


_make_document = openapi.document
_made: list[bytes] = []


def _document(routes: Sequence[Route], version: str) -> bytes:
    if not _made:
        _made.append(_make_document(routes, version))
    return _made[0]


class HttpReply(NamedTuple):
    """One response."""

    status: int
    reason: str


class Transport(asyncio.Transport):
    """Records the written responses; delivers no bytes while reading is paused."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[HttpReply] = []
        self.is_over = False
        self._is_paused = False

    def get_extra_info(self, name: str, default: object = None) -> Any:  # noqa: ANN401 - as its port says
        return ("127.0.0.1", 1) if name == "peername" else default

    def write(self, data: Any) -> None:  # noqa: ANN401 - as its port says
        head, _, body = bytes(data).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 "):
            return  # a later part of a streamed response
        status = int(head[9:12])
        if status != _CONTINUE:
            is_problem = b"application/problem+json" in head
            assert is_problem == (status >= _ERROR), head
            # A response to HEAD has no body.
            self.said.append(HttpReply(status, str(json.loads(body)["reason"]) if is_problem and body else ""))

    def is_reading(self) -> bool:
        return not self._is_paused

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Does nothing: the connection still reads."""

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_over = True

    def abort(self) -> None:
        self.is_over = True


class HttpClientConnection:
    """A client's end of one connection."""

    def __init__(self, world: World) -> None:
        self._world = world
        shield = BrowserShield("127.0.0.1", ())
        # The OpenAPI document is the same for all inputs, and takes longer to make than everything else.
        with patch.object(openapi, "document", _document):
            self.application = Application(world.backend, None, shield, Probes())
        self.transport = Transport()
        self._connection = HttpConnection(SharedServerState(self.application), asyncio.get_running_loop())
        self._connection.connection_made(self.transport)

    async def send(self, piece: bytes, *, is_hasty: bool = False) -> None:
        """Delivers bytes once the connection reads; unless `is_hasty`, waits until they are processed."""
        for _ in range(_LOOKS):
            if self.transport.is_reading() or self.transport.is_over:
                break
            await self._wait()
        if self.transport.is_over or not self.transport.is_reading():
            return
        self._connection.data_received(piece)
        self._check_bounds(piece)
        if not is_hasty:
            await self._world.settle()

    async def end(self) -> list[HttpReply]:
        """Ends the input and returns all responses."""
        for _ in range(_LOOKS):
            if self.transport.is_over or not self._connection._exchanges:
                break
            await self._wait()
        if not self.transport.is_over and self._connection.eof_received():
            await self._wait()
        self._connection.connection_lost(None)
        await self._world.settle()
        await self.application.close()
        return self.transport.said

    async def _wait(self) -> None:
        await self._world.settle()
        if self._connection.task is not None and not self._connection.task.done():
            await asyncio.sleep(0.001)

    def _check_bounds(self, piece: bytes) -> None:
        """Checks that the memory of the connection is bounded."""
        arrivals = self._connection._parser
        parts = sum(len(part) for exchange in arrivals.exchanges for part in exchange.parts)
        assert parts <= limits.MESSAGE_BYTES_MAX + len(piece)
        headers = sum(len(name) + len(value) for name, value in arrivals._headers)
        assert headers + len(arrivals._url) <= limits.HTTP_HEAD_BYTES_MAX + len(piece)
        assert len(arrivals.exchanges) <= 2 + len(piece)


def check_statuses(said: list[HttpReply]) -> None:
    """Checks that no response reports a server error; 501 and 505 are the client's errors."""
    for answer in said:
        assert answer.status < 500 or answer.status in {501, 505}, answer
