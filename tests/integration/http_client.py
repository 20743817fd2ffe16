"""Raw HTTP for tests: the bytes of each request are written here."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

PATIENCE_S = 30.0


@dataclass
class Reply:
    """One response; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    more: bytes = field(default=b"", repr=False)

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever it holds
        return json.loads(self.body)

    @property
    def reason(self) -> str:
        """The reason of a problem document; fails if the response is not one."""
        assert self.headers["content-type"] == "application/problem+json", self
        problem = self.json
        assert problem["status"] == self.status
        assert problem["title"]
        assert problem["detail"]
        return str(problem["reason"])


class Line:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def reply(self, *, has_body: bool = True) -> Reply:
        """Reads the next response."""
        async with asyncio.timeout(PATIENCE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            size = int(headers.get("content-length", "0")) if has_body else 0
            return Reply(int(first.split()[1]), headers, await self.reader.readexactly(size))

    async def chunk(self) -> bytes:
        """Reads the next chunk of a streamed response; empty at its end."""
        async with asyncio.timeout(PATIENCE_S):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def end(self) -> bytes:
        """Reads until the server closes the connection."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.read()


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Line]:
    """A connection for the duration of a block."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Line(reader, writer)
    finally:
        writer.transport.abort()


def request(method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
    """Encodes a request as bytes."""
    lines = {"Host": "127.0.0.1", **({} if body is None else {"Content-Length": str(len(body))}), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + (body or b"")


async def ask(
    address: str, method: str, target: str, content: object = None, headers: Mapping[str, str] | None = None
) -> Reply:
    """Sends one request on a new connection; `content` is sent as JSON, and bytes as they are."""
    body = content if isinstance(content, bytes) or content is None else json.dumps(content).encode()
    kind = {} if body is None else {"Content-Type": "application/json"}
    async with connected(address) as line:
        line.writer.write(request(method, target, body, {**kind, **(headers or {})}))
        return await line.reply(has_body=method != "HEAD")


async def post(address: str, target: str, content: object = None, **headers: str) -> Reply:
    """Sends a POST; underscores in header names stand for hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await ask(address, "POST", target, content, named)


async def get(address: str, target: str) -> Reply:
    """Sends a GET."""
    return await ask(address, "GET", target)
