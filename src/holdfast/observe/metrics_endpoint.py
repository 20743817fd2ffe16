"""A small HTTP server for `/metrics`, `/livez` and `/readyz`, on the loop of whoever starts it.

It answers GET and HEAD, one request a connection. Whoever is slow, says too much or makes no sense is cut off, and
there are never more than a few connections, so that nobody can hurt the server beside it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus

from holdfast.core.condition import Conditions, no_conditions, ready_text
from holdfast.errors import HoldfastError, UnavailableError

#: For the whole of a request and its answer.
_PATIENCE_S = 5.0
_REQUEST_BYTES_MAX = 8_192
_CONNECTIONS_MAX = 32
_TEXT = "text/plain; charset=utf-8"
#: Probes come from machines that know no name of this one, and learn nothing.
_PROBES = frozenset({"/livez", "/readyz"})
_JSON = "application/json"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: A page: its status, its type and its body.
Page = tuple[HTTPStatus, str, bytes]


class Endpoint:
    """One listening socket. `start`, then `stop`."""

    def __init__(
        self,
        metrics: Callable[[], Awaitable[bytes]] | None,
        check_host: Callable[[bytes], None],
        conditions: Conditions = no_conditions,
        *,
        starting: Callable[[], bytes] | None = None,
    ) -> None:
        """`check_host` raises a `HoldfastError` for a header `Host` that is no name of this server.

        `starting` is the JSON that `/readyz` answers until there are metrics to `serve`.
        """
        self._metrics = metrics
        self._check_host = check_host
        self._conditions = conditions
        self._starting = starting
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_ready = False

    async def start(self, host: str, port: int) -> str:
        """Listens and returns the address; `UnavailableError` if the port cannot be had."""
        shown = f"[{host}]" if ":" in host else host
        try:
            self._server = await asyncio.start_server(self._accept, host, port, limit=_REQUEST_BYTES_MAX)
        except OSError as error:
            raise UnavailableError(
                f"cannot serve metrics on {shown}:{port}: {error.strerror or error};"
                " choose another port with --metrics-port",
                reason="PORT_IN_USE",
            ) from error
        return f"{shown}:{self._server.sockets[0].getsockname()[1]}"

    def serve(self, metrics: Callable[[], Awaitable[bytes]], conditions: Conditions) -> None:
        """The start is over, and these are the numbers."""
        self._metrics, self._conditions, self._starting = metrics, conditions, None

    async def stop(self) -> None:
        """Closes everything at once."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= _CONNECTIONS_MAX:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
                async with asyncio.timeout(_PATIENCE_S):
                    await self._answer(await reader.readuntil(b"\r\n\r\n"), writer)
                    writer.close()
                    await writer.wait_closed()
        finally:
            writer.transport.abort()

    async def _answer(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        first, *headers = request.split(b"\r\n")
        line = first.decode("latin-1").split(" ")
        if len(line) != 3 or not line[2].startswith("HTTP/1."):  # noqa: PLR2004 - method, target, version
            return
        method, target, _ = line
        status, kind, body = await self._page(method, target.partition("?")[0], headers)
        head = "\r\n".join(
            [
                f"HTTP/1.1 {status.value} {status.phrase}",
                f"Content-Type: {kind}",
                f"Content-Length: {len(body)}",
                *(["Allow: GET, HEAD"] if status == HTTPStatus.METHOD_NOT_ALLOWED else []),
                "Cache-Control: no-store",
                "Connection: close",
                "\r\n",
            ]
        )
        writer.write(head.encode() + (b"" if method == "HEAD" else body))
        await writer.drain()

    async def _page(self, method: str, path: str, headers: Sequence[bytes]) -> Page:
        if method not in {"GET", "HEAD"}:
            return _words(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered here")
        pages: Mapping[str, Callable[[], Awaitable[Page]]] = {
            "/metrics": self._metrics_page,
            "/livez": self._live_page,
            "/readyz": self._ready_page,
        }
        page = pages.get(path)
        if path not in _PROBES:
            try:
                self._check_host(_host_of(headers))
            except HoldfastError as error:
                return _words(HTTPStatus.FORBIDDEN, error.message)
        return await page() if page else _words(HTTPStatus.NOT_FOUND, "here are /metrics, /livez and /readyz")

    async def _metrics_page(self) -> Page:
        if self._metrics is None:
            return _words(HTTPStatus.SERVICE_UNAVAILABLE, "the server is starting, and counts nothing yet")
        return HTTPStatus.OK, METRICS_TYPE, await self._metrics()

    async def _live_page(self) -> Page:
        return _words(HTTPStatus.OK, "alive")

    async def _ready_page(self) -> Page:
        if self.is_ready:
            return HTTPStatus.OK, _TEXT, ready_text(self._conditions()).encode()
        if self._starting is not None:
            return HTTPStatus.SERVICE_UNAVAILABLE, _JSON, self._starting()
        return _words(HTTPStatus.SERVICE_UNAVAILABLE, "not ready: it is starting, or goes away soon")


def _host_of(headers: Sequence[bytes]) -> bytes:
    """What the header `Host` says; nothing if it is not said once."""
    pairs = [line.partition(b":") for line in headers]
    said = [value.strip() for name, _, value in pairs if name.strip().lower() == b"host"]
    return said[0] if len(said) == 1 else b""


def _words(status: HTTPStatus, text: str) -> Page:
    return status, _TEXT, f"{text}\n".encode()
