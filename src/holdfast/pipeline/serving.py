"""How a role serves HTTP: its own routes, and what every role answers.

    server = RoleServer(routes, Vitals("queue"))
    address = await server.start("127.0.0.1", 7001)      # host:port; port 0 finds a free one
    await server.stop()

A body comes as JSON, read strictly into the type that its route names; as MessagePack, where it says so; or as the
bytes that they are, where the route's type is `bytes`. Whatever is not a success is a problem (RFC 9457); a bug is
logged, and told to nobody.
"""

import asyncio
import ssl
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, cast

import msgspec

from holdfast.errors import HoldfastError, InvalidArgumentError, NotFoundError, UnavailableError
from holdfast.gateway.guarding import Guard, OpenGuard, Scope
from holdfast.gateway.http.answering import problem_answer
from holdfast.gateway.http.asking import Answer, Asked, Head, Headers
from holdfast.gateway.http.problems import HttpError
from holdfast.gateway.http.routing import Route, Router
from holdfast.gateway.http.securing import BrowserShield
from holdfast.gateway.http.server import HttpServer
from holdfast.gateway.http.shielding import PlainShield, Shield
from holdfast.gateway.refusing import hidden, log_refusal
from holdfast.pipeline.vitals import VitalRoutes, Vitals

MSGPACK_TYPE = b"application/msgpack"
_PACKER = msgspec.msgpack.Encoder()
_LOGGED_CHARS_MAX = 128
#: How long requests under way may take when a role stops.
GRACE_S = 2.0


class RoleApplication:
    """What becomes of a request to one role."""

    def __init__(self, routes: Iterable[Route], vitals: Vitals, guard: Guard, shield: Shield) -> None:
        self._vitals = vitals
        self._guard = guard
        self.shield = shield
        self._router = Router([*routes, *VitalRoutes(vitals).routes()])

    def start(self) -> None:
        """Nothing goes on beside the requests."""

    async def close(self) -> None:
        """Lets go whoever is kept waiting."""
        self._vitals.on_stop()

    @property
    def headers(self) -> Headers:
        """What every answer says beside its own."""
        return self.shield.headers()

    def admit(self, head: Head) -> Asked | Answer:
        """Lets a request in by its head alone, or answers it."""
        try:
            return self._admitted(head)
        except HoldfastError as error:
            return self.refused(error, head)
        except Exception as error:  # noqa: BLE001 - no request may stop the role
            return self.refused(hidden(error, _name(head)), head)

    def _admitted(self, head: Head) -> Asked:
        found = self._router.find(head.path)
        if found is None:
            paths = ", ".join(sorted({route.path for route in self._router.routes}))
            message = f"there is nothing at this path; a {self._vitals.role} process has {paths}"
            raise NotFoundError(message, reason="PATH_UNKNOWN")
        route = found.methods.get("GET" if head.method == "HEAD" else head.method)
        if route is None:
            allowed = ", ".join(sorted(found.methods))
            message = f"expected the method to be one of {allowed}, got {head.method[:20]}"
            raise HttpError(HTTPStatus.METHOD_NOT_ALLOWED, message, headers={"allow": allowed})
        self.shield.check(head, route)
        asked = Asked(head, route, found.params)
        asked.over = asyncio.Event()
        if isinstance(route.scope, Scope):
            asked.caller = self._guard.admit(self.shield.token(head), head.peer, route.scope)
        asked.read_query(route.query)
        if route.body is not None:
            asked.check_length()
        return asked

    async def answer(self, asked: Asked) -> Answer:
        """Answers a request that has arrived."""
        try:
            if asked.route.body is not None:
                await _read(asked)
            return cast("Answer", await asked.route.handler(asked))
        except HoldfastError as error:
            return self.refused(error, asked.head)
        except Exception as error:  # noqa: BLE001 - no request may stop the role
            return self.refused(hidden(error, _name(asked.head)), asked.head)

    @staticmethod
    def refused(error: HoldfastError, head: Head) -> Answer:
        """The problem, which is logged."""
        log_refusal(error, _name(head), head.peer)
        return problem_answer(error)


async def _read(asked: Asked) -> None:
    """Reads the body as its route and its content type say."""
    route = asked.route
    kind = asked.head.header(b"content-type").partition(";")[0].strip().lower()
    if route.body is bytes:
        asked.content = asked.body
    elif kind == "application/msgpack":
        try:
            asked.content = msgspec.msgpack.decode(asked.body, type=route.body)
        except msgspec.MsgspecError as error:
            message = f"expected the body to be MessagePack that fits: {str(error)[:400]}"
            raise InvalidArgumentError(message, reason="BODY_INVALID") from None
    else:
        await asked.read_json(route.body, is_optional=route.is_body_optional, by_name=route.bodies_by_name)


async def left(asked: Asked) -> None:
    """Returns when whoever asks has left."""
    assert asked.over is not None, "every request to a role has one"
    await asked.over.wait()


def packed(value: object) -> Answer:
    """A value as MessagePack."""
    return Answer(HTTPStatus.OK, _PACKER.encode(value), MSGPACK_TYPE)


class RoleServer:
    """One address of one role."""

    def __init__(
        self,
        routes: Sequence[Route],
        vitals: Vitals,
        *,
        guard: Guard | None = None,
        shield: Shield | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Without a shield, only requests that go by an address or name of this machine are answered."""
        self._is_shielded = shield is not None
        self._application = RoleApplication(routes, vitals, guard or OpenGuard(), shield or PlainShield())
        self._http = HttpServer(cast("Any", self._application), tls=tls)

    async def start(self, host: str, port: int) -> str:
        """Listens and returns the address; `UnavailableError` if the port cannot be had."""
        if not self._is_shielded:
            self._application.shield = BrowserShield(host)
        try:
            return await self._http.start(host, port)
        except UnavailableError as error:
            words = error.message.partition(";")[0]
            raise UnavailableError(f"{words}; choose another port with --port", reason=error.reason) from error

    async def stop(self, grace_s: float = GRACE_S) -> None:
        """Takes no more requests, answers those that are under way, and closes."""
        await self._http.stop(grace_s)


def _name(head: Head) -> str:
    return f"{head.method} {head.path}"[:_LOGGED_CHARS_MAX]
