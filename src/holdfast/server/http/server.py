"""The listening socket of the HTTP gateway."""

import asyncio
import errno
import socket
from email.utils import formatdate

from holdfast import limits
from holdfast.errors import UnavailableError
from holdfast.server.auth.certificates import Certificates
from holdfast.server.descriptors import HTTP_SHARE, connections_allowed
from holdfast.server.http.handshakes import Handshakes
from holdfast.server.http.protocol import HttpConnection, MakeWire, SharedServerState
from holdfast.server.http.request_handler import RequestHandler
from holdfast.server.http.response import lines_of

_SWEEP_S = 1.0
_BACKLOG = 1_024


class HttpServer:
    """One address. `start`, then `stop`; `serve` replaces the application in between."""

    def __init__(
        self,
        application: RequestHandler,
        *,
        tls: Certificates | None = None,
        wire: MakeWire | None = None,
        connections_max: int | None = None,
        share: float = HTTP_SHARE,
        content: str = "HTTP",
        advice: str = "choose another port with --http-port, or none with --no-http",
    ) -> None:
        """`wire` makes the end of a connection that speaks the wire instead of HTTP.

        `share` is the part of the process's descriptors for this port. `content` and `advice` are
        for the error message if the port is not available.
        """
        self._application = application
        self._connections_max = limits.HTTP_CONNECTIONS_MAX if connections_max is None else connections_max
        self._share = share
        self._content, self._advice = content, advice
        self._tls = tls
        self._shared = SharedServerState(application, wire)
        self._server: asyncio.Server | None = None
        self._handshakes: Handshakes | None = None
        self._sweeping: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> str:
        """Listens and returns the address; `UnavailableError` if the port is not available."""
        loop = asyncio.get_running_loop()
        shown = f"[{host}]" if ":" in host else host
        try:
            listening = _bound(host, port)
        except OSError as error:
            is_elsewhere = error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror)
            advice = "set --host to an address of this machine" if is_elsewhere else self._advice
            raise UnavailableError(
                f"cannot serve {self._content} on {shown}:{port}: {error.strerror or error}; {advice}",
                reason="PORT_IN_USE",
            ) from error
        address = f"{shown}:{listening.getsockname()[1]}"
        # With TLS, there may be as many handshakes as connections.
        share = self._share if self._tls is None else self._share / 2
        most = self._shared.connections_max = connections_allowed(self._connections_max, share)
        if self._tls is None:
            self._server = await loop.create_server(self._connection, sock=listening, backlog=_BACKLOG)
        else:
            self._handshakes = Handshakes(listening, self._tls, self._connection, most=most)
            self._handshakes.start()
        self._sweep()
        self._application.start()
        return address

    def serve(self, application: RequestHandler, wire: MakeWire | None = None) -> None:
        """Replaces the application; open connections end after their response in progress."""
        self._application = self._shared.application = application
        self._shared.wire = wire
        self._say_lines()
        application.start()
        for connection in tuple(self._shared.connections):
            connection.stop()

    def _connection(self) -> HttpConnection:
        return HttpConnection(self._shared, asyncio.get_running_loop())

    def _sweep(self) -> None:
        """Checks the time limits of every connection, and updates the Date header."""
        loop = asyncio.get_running_loop()
        self._sweeping = loop.call_later(_SWEEP_S, self._sweep)
        self._say_lines()
        now = loop.time()
        for connection in tuple(self._shared.connections):
            connection.sweep(now)

    def _say_lines(self) -> None:
        date = formatdate(usegmt=True).encode()
        self._shared.lines = lines_of([(b"date", date), *self._application.headers])

    async def stop(self, grace_s: float) -> None:
        """Accepts no more requests, answers those in progress, and closes."""
        if self._sweeping is None:
            return
        if self._server is not None:
            self._server.close()
        if self._handshakes is not None:
            await self._handshakes.stop()
        await self._application.close()
        connections = tuple(self._shared.connections)
        for connection in connections:
            connection.stop()
        tasks = [connection.task for connection in connections if connection.task and not connection.task.done()]
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        for task in tasks:
            task.cancel()
        for connection in tuple(self._shared.connections):
            if not connection.transport.is_closing():
                connection.abort()
        self._sweeping.cancel()


def _bound(host: str, port: int) -> socket.socket:
    """Returns a listening socket that does not share its port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(_BACKLOG)
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)  # noqa: FBT003 - its only parameter
    return bound
