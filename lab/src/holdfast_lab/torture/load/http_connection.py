"""One HTTP connection for one request at a time, without retries."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast_lab.torture.load.interfaces import DEADLINE_S, LostError

_HEAD_BYTES_MAX = 64 * 1024
_BODY_BYTES_MAX = 16 * 1024 * 1024


class HttpReply(msgspec.Struct, frozen=True):
    """A status, the headers in lower case, and the JSON of the body."""

    status: int
    headers: dict[str, str]
    body: Any


class HttpConnection:
    """Connects on demand, and reconnects after an error."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> HttpReply:
        """Returns the response, whatever its status; raises `LostError` if there is none."""
        is_over = False
        try:
            async with asyncio.timeout(deadline_s):
                answer = await self._exchange(method, path, body, headers or {})
            is_over = True
        except TimeoutError:
            raise LostError("DEADLINE_EXCEEDED") from None
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            raise LostError("UNAVAILABLE", f"{type(error).__name__}: {error}") from None
        else:
            return answer
        finally:
            if not is_over:
                self._drop()

    async def _exchange(self, method: str, path: str, body: object, headers: Mapping[str, str]) -> HttpReply:
        if self._streams is None or self._streams[1].is_closing():
            self._streams = await asyncio.open_connection(self._host, self._port, limit=_HEAD_BYTES_MAX)
        reader, writer = self._streams
        content = b"" if body is None else msgspec.json.encode(body)
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self._address}", f"Content-Length: {len(content)}"]
        if content:
            lines.append("Content-Type: application/json")
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
        await writer.drain()
        status, told = _head(await reader.readuntil(b"\r\n\r\n"))
        length = int(told.get("content-length", "0"))
        if length > _BODY_BYTES_MAX:
            raise OSError(f"a response of {length} bytes is too large")
        text = await reader.readexactly(length)
        if told.get("connection", "").lower() == "close":
            self._drop()
        try:
            return HttpReply(status, told, msgspec.json.decode(text) if text else None)
        except msgspec.DecodeError:
            return HttpReply(status, told, None)

    def _drop(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
        self._streams = None

    async def close(self) -> None:
        """Closes the connection."""
        self._drop()


def _head(data: bytes) -> tuple[int, dict[str, str]]:
    first, *rest = data.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[1].isdigit():  # noqa: PLR2004 - the version and the status
        raise OSError(f"not an HTTP response: {first[:80]!r}")
    pairs = (line.partition(":") for line in rest if line)
    return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}
