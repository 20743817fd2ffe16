"""How a role serves HTTP: its own routes, and what every role answers.

    server = RoleServer(routes, Vitals("queue"))
    address = await server.start("127.0.0.1", 7001)      # host:port; port 0 finds a free one
    await server.stop()

A body comes as JSON, read strictly into the type that its route names; as MessagePack, where it says so; or as the
bytes that they are, where the route's type is `bytes`. Whatever is not a success is a problem (RFC 9457); a bug is
logged, and told to nobody.
"""

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.errors import InvalidArgumentError, UnavailableError
from holdfast.server.http.browser_security import BrowserShield
from holdfast.server.http.request import Asked
from holdfast.server.http.request_handler import Handling
from holdfast.server.http.routing import Route
from holdfast.server.http.server import HttpServer
from holdfast.topologies.pipeline.roles.callers import guard_of
from holdfast.topologies.pipeline.roles.role_health import RoleHealth, VitalRoutes

_MSGPACK = "application/msgpack"
MSGPACK_TYPE = _MSGPACK.encode()
#: How long requests under way may take when a role stops.
GRACE_S = 2.0


class RoleApplication(Handling):
    """What becomes of a request to one role."""

    tells_of_leaving = True

    def __init__(self, routes: Iterable[Route], vitals: RoleHealth, host: str, hashes: str = "") -> None:
        """Only requests that go by an address or name of this machine are answered; `hashes` are its callers'."""
        self._vitals = vitals
        table = [*routes, *VitalRoutes(vitals).routes()]
        paths = ", ".join(sorted({route.path for route in table}))
        guard = guard_of(vitals.role, hashes)
        super().__init__(table, f"a {vitals.role} process has {paths}", guard, BrowserShield(host))

    async def close(self) -> None:
        """Lets go whoever is kept waiting."""
        self._vitals.on_stop()

    async def read(self, asked: Asked) -> None:
        """Reads the body as its route and its content type say."""
        route = asked.route
        kind = asked.head.header(b"content-type").partition(";")[0].strip().lower()
        if route.body is bytes:
            asked.content = asked.body
        elif kind == _MSGPACK:
            try:
                asked.content = msgspec.msgpack.decode(asked.body, type=route.body)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                message = f"expected the body to be MessagePack that fits: {str(error)[:400]}"
                raise InvalidArgumentError(message, reason="BODY_INVALID") from None
        else:
            await super().read(asked)


async def left(asked: Asked) -> None:
    """Returns when whoever asks has left."""
    assert asked.over is not None, "every request to a role has one"
    await asked.over.wait()


class RoleServer:
    """One address of one role."""

    def __init__(self, routes: Sequence[Route], vitals: RoleHealth, hashes: str = "") -> None:
        """`hashes` are those of its callers' tokens; without them whoever reaches it may call it."""
        self._hashes = hashes
        self._routes = routes
        self._vitals = vitals
        self._http: HttpServer | None = None

    async def start(self, host: str, port: int) -> str:
        """Listens and returns the address; `UnavailableError` if the port cannot be had."""
        self._http = HttpServer(RoleApplication(self._routes, self._vitals, host, self._hashes))
        try:
            return await self._http.start(host, port)
        except UnavailableError as error:
            words = error.message.partition(";")[0]
            raise UnavailableError(f"{words}; choose another port with --port", reason=error.reason) from error

    async def stop(self, grace_s: float = GRACE_S) -> None:
        """Takes no more requests, answers those that are under way, and closes."""
        if self._http is not None:
            await self._http.stop(grace_s)
