"""Load over HTTP: the same minimal client for the yardstick and for the measured server.

Requests are encoded before the clock starts, and there is no task or future for each request, so that the client
leaves the processor to the server.
"""

import asyncio
import json
import re
import time
from collections.abc import Callable
from typing import cast

from holdfast_lab.bench.grpc_load import BATCH

#: 100 bytes of payload, as over gRPC.
ONE = json.dumps({"type": "bench", "payload": {"text": "x" * 88}}, separators=(",", ":")).encode()
MANY = b'{"jobs":[' + b",".join([ONE] * BATCH) + b"]}"
_LENGTH = re.compile(rb"\r\ncontent-length: ([0-9]+)\r\n", re.IGNORECASE)


class _Lane(asyncio.Protocol):
    """One connection that repeats a request, each time as soon as the response is complete."""

    def __init__(self, request: bytes, times: int, done: Callable[[Exception | None], None]) -> None:
        self._request = request
        self._left = times
        self._done = done
        self._buffer = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def ask(self) -> None:
        """Send the first request."""
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Check the response: every status has to be 202."""
        self._buffer = response = self._buffer + data if self._buffer else data
        end = response.find(b"\r\n\r\n") + 4
        length = _LENGTH.search(response, 0, end) if end >= 4 else None  # noqa: PLR2004 - the empty line
        if length is None or len(response) < end + int(length[1]):
            return
        self._buffer = b""
        self._left -= 1
        if not response.startswith(b"HTTP/1.1 202 "):
            self._done(AssertionError(response[:500]))
        elif self._left:
            self._transport.write(self._request)
        else:
            self._done(None)

    def connection_lost(self, error: Exception | None) -> None:
        if self._left:
            self._done(error or ConnectionResetError("the server closed the connection"))

    def close(self) -> None:
        self._left = 0
        self._transport.abort()


async def http_seconds(address: str, path: str, body: bytes, times: int, lanes: int) -> float:
    """Seconds until `times` responses have come, over `lanes` persistent connections."""
    host, _, port = address.rpartition(":")
    kind = f"Host: {address}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    request = f"POST {path} HTTP/1.1\r\n{kind}\r\n\r\n".encode() + body
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[None] = loop.create_future()
    under_way = lanes

    def done(error: Exception | None) -> None:
        nonlocal under_way
        under_way -= 1
        if error is not None and not answered.done():
            answered.set_exception(error)
        elif under_way == 0 and not answered.done():
            answered.set_result(None)

    def made() -> _Lane:
        return _Lane(request, times // lanes, done)

    connections = [(await loop.create_connection(made, host, int(port)))[1] for _ in range(lanes)]
    try:
        start = time.perf_counter()
        for connection in connections:
            connection.ask()
        await answered
        return time.perf_counter() - start
    finally:
        for connection in connections:
            connection.close()
