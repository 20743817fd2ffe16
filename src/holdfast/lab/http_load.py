"""Load over HTTP: the same few bytes of client for the yardstick and for what is measured."""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import cast

from holdfast.lab.load import BATCH

#: 100 bytes of payload, as over gRPC.
ONE = json.dumps({"type": "bench", "payload": {"text": "x" * 88}}, separators=(",", ":")).encode()
MANY = b'{"jobs":[' + b",".join([ONE] * BATCH) + b"]}"


class _Line(asyncio.Protocol):
    """One connection that asks the same again and again."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._buffer = b""
        self._answered: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    async def ask(self) -> None:
        """One request and its answer, which has to be 202."""
        assert self._transport is not None
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(self._request)
        await self._answered

    def close(self) -> None:
        assert self._transport is not None
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        if end and len(body) == int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]):
            assert head.startswith(b"HTTP/1.1 202"), self._buffer[:500]
            self._buffer = b""
            assert self._answered is not None
            self._answered.set_result(None)


async def http_rate(address: str, path: str, body: bytes, times: int, lanes: int) -> float:
    """Answers a second, each lane on a connection of its own that stays."""
    host, _, port = address.rpartition(":")
    kind = f"Host: {address}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    request = f"POST {path} HTTP/1.1\r\n{kind}\r\n\r\n".encode() + body
    loop = asyncio.get_running_loop()
    lines = [(await loop.create_connection(lambda: _Line(request), host, int(port)))[1] for _ in range(lanes)]
    try:
        return await _rate(lines, times // lanes)
    finally:
        for line in lines:
            line.close()


async def _rate(lines: Sequence[_Line], times: int) -> float:
    async def lane(line: _Line) -> None:
        for _ in range(times):
            await line.ask()

    start = time.perf_counter()
    await asyncio.gather(*map(lane, lines))
    return times * len(lines) / (time.perf_counter() - start)
