"""`holdfast server` with its HTTP port served by uvicorn: one side of `holdfast_lab.bench.uvicorn_comparison`.

The routes, the checks and the handlers are those of the product. Only the connection differs: uvicorn reads requests
and writes responses, and a thin ASGI application passes them on. Run as a process of its own, with the options of
`holdfast server`.
"""

import asyncio
import contextlib
import socket
import sys
from collections import deque
from http import HTTPStatus
from typing import Any

import uvicorn

from holdfast.cli import main
from holdfast.server.http import server
from holdfast.server.http.request import AdmittedRequest, Head, Headers, HttpResponse
from holdfast.server.http.request_handler import RequestHandler

_BARE = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)


class _StreamWriter:
    """The connection of an event stream: collects what handlers write, and a task sends it."""

    def __init__(self, send: Any, shared: Headers) -> None:  # noqa: ANN401 - ASGI's callable
        self._send = send
        self._shared = shared
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._changed = asyncio.Event()
        self.headers: Headers = []

    def begin(self, headers: Headers) -> None:
        self.headers = headers
        self._changed.set()

    def write(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        self._changed.set()

    def get_write_buffer_size(self) -> int:
        return self._size

    def abort(self) -> None:
        self._parts.clear()

    async def run(self) -> None:
        """Send the head, then every part in the order in which it was written."""
        await self._changed.wait()
        await self._send({"type": "http.response.start", "status": 200, "headers": [*self._shared, *self.headers]})
        while True:
            self._changed.clear()
            while self._parts:
                data = b"".join(self._parts)
                self._parts.clear()
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
                self._size -= len(data)
            await self._changed.wait()


class AsgiApplication:
    """The product's table of routes as an ASGI application."""

    def __init__(self, application: RequestHandler) -> None:
        self.application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's types
        """Handle one request."""
        assert scope["type"] == "http"
        application, client = self.application, scope["client"]
        peer = f"{client[0]}:{client[1]}" if client else ""
        path = scope["raw_path"].decode("ascii")
        head = Head(scope["method"], path, scope["headers"], peer, scope["scheme"] == "https", scope["query_string"])
        admitted = application.admit(head)
        if isinstance(admitted, AdmittedRequest):
            if admitted.route.body is not None:
                admitted.body = await _body(receive)
            if admitted.over is not None and admitted.route.is_stream:
                await self._stream(admitted, receive, send)
                return
            admitted = await application.answer(admitted) or HttpResponse(HTTPStatus.OK)
        await _respond(admitted, application.headers, send)

    async def _stream(self, request: AdmittedRequest, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's types
        writer = _StreamWriter(send, self.application.headers)
        request.line = writer
        sender = asyncio.create_task(writer.run())
        watcher = asyncio.create_task(_watch(receive, request))
        try:
            await self.application.answer(request)
        finally:
            for task in (sender, watcher):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


async def _watch(receive: Any, request: AdmittedRequest) -> None:  # noqa: ANN401 - ASGI's callable
    """End the stream when its client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
    assert request.over is not None
    request.over.set()


async def _body(receive: Any) -> bytes:  # noqa: ANN401 - ASGI's callable
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _respond(answer: HttpResponse, shared: Headers, send: Any) -> None:  # noqa: ANN401 - ASGI's callable
    headers = [*shared, *answer.headers, (b"cache-control", answer.cache)]
    if answer.status not in _BARE:
        headers += [(b"content-type", answer.type), (b"content-length", str(len(answer.body)).encode())]
    await send({"type": "http.response.start", "status": int(answer.status), "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


class UvicornHttpServer:
    """Replacement of the product's `HttpServer`."""

    def __init__(self, application: RequestHandler, *, tls: object = None, **_options: object) -> None:
        assert tls is None, "the comparison is made without TLS"
        self._asgi = AsgiApplication(application)
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> str:
        """Listen and return the address."""
        listening = socket.create_server((host, port), backlog=1_024)
        config = uvicorn.Config(
            self._asgi,
            loop="uvloop",
            http="httptools",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
        )
        self._server = uvicorn.Server(config)
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        self._server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
        self._task = asyncio.create_task(self._server.serve([listening]))
        while not self._server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        self._asgi.application.start()
        return f"{host}:{listening.getsockname()[1]}"

    def serve(self, application: RequestHandler) -> None:
        """Use this application from now on."""
        self._asgi.application = application
        application.start()

    async def stop(self, grace_s: float) -> None:
        """Close the port and the connections."""
        del grace_s
        await self._asgi.application.close()
        if self._server is not None and self._task is not None:
            self._server.should_exit = self._server.force_exit = True
            await self._task


if __name__ == "__main__":
    server.HttpServer = UvicornHttpServer  # type: ignore[misc,assignment]
    sys.argv[0] = "holdfast"
    sys.exit(main())
