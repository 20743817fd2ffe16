"""The HTTP server of a role: its own routes, and the monitoring routes of every role.

    server = RoleServer(routes, RoleHealth("queue"))
    address = await server.start("127.0.0.1", 7001)      # host:port; port 0 selects a free one
    await server.stop()

A body is JSON, decoded strictly into the type of its route, or MessagePack if its content type says so; a route of the
type `bytes` gets it unchanged. Every error is a problem document (RFC 9457); the details of a bug are only logged.
"""

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.errors import InvalidArgumentError, UnavailableError
from holdfast.server.http.browser_security import BrowserShield
from holdfast.server.http.request import AdmittedRequest
from holdfast.server.http.request_handler import RequestHandler
from holdfast.server.http.routing import Route
from holdfast.server.http.server import HttpServer
from holdfast.topologies.pipeline.roles.callers import guard_of
from holdfast.topologies.pipeline.roles.role_health import HealthRoutes, RoleHealth

_MSGPACK = "application/msgpack"
MSGPACK_TYPE = _MSGPACK.encode()
#: How long requests in progress may take when a role stops.
GRACE_S = 2.0


class RoleApplication(RequestHandler):
    """The handling of requests to one role."""

    tells_of_leaving = True

    def __init__(self, routes: Iterable[Route], vitals: RoleHealth, host: str, hashes: str = "") -> None:
        """Accepts only requests to an address or name of this machine; `hashes` are those of its callers' tokens."""
        self._vitals = vitals
        table = [*routes, *HealthRoutes(vitals).routes()]
        paths = ", ".join(sorted({route.path for route in table}))
        guard = guard_of(vitals.role, hashes)
        super().__init__(table, f"a {vitals.role} process has {paths}", guard, BrowserShield(host))

    async def close(self) -> None:
        """Ends the long polls."""
        self._vitals.on_stop()

    async def read(self, request: AdmittedRequest) -> None:
        """Decodes the body according to its route and its content type."""
        route = request.route
        kind = request.head.header(b"content-type").partition(";")[0].strip().lower()
        if route.body is bytes:
            request.content = request.body
        elif kind == _MSGPACK:
            try:
                request.content = msgspec.msgpack.decode(request.body, type=route.body)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                message = f"the body must be MessagePack of the route's type: {str(error)[:400]}"
                raise InvalidArgumentError(message, reason="BODY_INVALID") from None
        else:
            await super().read(request)


async def left(request: AdmittedRequest) -> None:
    """Returns when the client has disconnected."""
    assert request.over is not None, "every request to a role has this event"
    await request.over.wait()


class RoleServer:
    """One address of one role."""

    def __init__(self, routes: Sequence[Route], vitals: RoleHealth, hashes: str = "") -> None:
        """`hashes` are those of its callers' tokens; without them every process that reaches it may call it."""
        self._hashes = hashes
        self._routes = routes
        self._vitals = vitals
        self._http: HttpServer | None = None

    async def start(self, host: str, port: int) -> str:
        """Listens and returns the address. Raises `UnavailableError` if the port is not available."""
        self._http = HttpServer(RoleApplication(self._routes, self._vitals, host, self._hashes))
        try:
            return await self._http.start(host, port)
        except UnavailableError as error:
            words = error.message.partition(";")[0]
            raise UnavailableError(f"{words}; choose another port with --port", reason=error.reason) from error

    async def stop(self, grace_s: float = GRACE_S) -> None:
        """Accepts no more requests, answers those in progress, and closes."""
        if self._http is not None:
            await self._http.stop(grace_s)
