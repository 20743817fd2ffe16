"""Processing of a request: find the route, check shield and guard, read the body, call the handler.

Every HTTP server uses it. Invariants: no part of a body is kept before its caller is admitted; every failure is a
problem response; a bug is logged, and its details are not sent.
"""

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from typing import cast

from holdfast.errors import HoldfastError, NotFoundError
from holdfast.server.auth.permissions import Guard, Scope
from holdfast.server.http.problems import HttpError
from holdfast.server.http.request import EVENT_STREAM, AdmittedRequest, Head, Headers, HttpResponse, StreamedResponse
from holdfast.server.http.request_shield import Shield
from holdfast.server.http.response import problem_answer
from holdfast.server.http.routing import Route, RouteMatch, Router
from holdfast.server.refusal_log import hidden, log_refusal

_LOGGED_CHARS_MAX = 128


class RequestHandler:
    """A table of routes that is served."""

    #: Whether every request has `asked.over`, which is set when the client disconnects; otherwise only streams have it.
    tells_of_leaving = False

    def __init__(self, routes: Iterable[Route], hint: str, guard: Guard, shield: Shield) -> None:
        """`hint` is part of the error for an unknown path."""
        self.router = Router(routes)
        self._hint = hint
        self._guard = guard
        self._shield = shield

    def start(self) -> None:
        """Starts background tasks; there are none by default."""

    async def close(self) -> None:
        """Ends background tasks and waiting requests; there are none by default."""

    async def read(self, request: AdmittedRequest) -> None:
        """Reads the body of a request whose route has one."""
        route = request.route
        await request.read_json(route.body, is_optional=route.is_body_optional, by_name=route.bodies_by_name)

    @property
    def headers(self) -> Headers:
        """The headers of every response."""
        return self._shield.headers()

    def admit(self, head: Head) -> AdmittedRequest | HttpResponse:
        """Admits a request by its head alone, or answers it."""
        try:
            return self._admitted(head)
        except HoldfastError as error:
            return self.refused(error, head)
        except Exception as error:  # noqa: BLE001 - no request may stop the server
            return self.refused(hidden(error, _name(head)), head)

    def _admitted(self, head: Head) -> AdmittedRequest | HttpResponse:
        found = self.router.find(head.path)
        if found is None:
            raise NotFoundError(f"unknown path; {self._hint}", reason="PATH_UNKNOWN")
        route = found.methods.get("GET" if head.method == "HEAD" else head.method)
        if route is None:
            return _other(head, found)
        self._shield.check(head, route)
        request = AdmittedRequest(head, route, found.params)
        if route.is_stream and head.method != "HEAD":
            request.over = asyncio.Event()
            return request
        if self.tells_of_leaving:
            request.over = asyncio.Event()
        if isinstance(route.scope, Scope):
            request.caller = self._guard.admit(self._shield.token(head), head.peer, route.scope)
        request.read_query(route.query)
        if route.body is not None:
            request.check_length()
        return request

    async def answer(self, request: AdmittedRequest) -> HttpResponse | None:
        """Answers a complete request; None if the response was a stream, which has ended."""
        route = request.route
        try:
            if route.is_stream:
                if request.head.method == "HEAD":
                    return HttpResponse(HTTPStatus.OK, b"", EVENT_STREAM)
                await self._stay(request)
                return None
            if route.body is not None:
                await self.read(request)
            return cast("HttpResponse", await route.handler(request))
        except HoldfastError as error:
            return self.refused(error, request.head)
        except Exception as error:  # noqa: BLE001 - no request may stop the server
            return self.refused(hidden(error, _name(request.head)), request.head)

    async def _stay(self, request: AdmittedRequest) -> None:
        """Serves a stream until it ends or its caller loses the permission."""
        head, route, over = request.head, request.route, request.over
        assert over is not None, "a stream request has `over`"
        session = self._guard.enter(self._shield.token(head), head.peer, route.scope, lambda _: over.set())
        try:
            request.read_query(route.query)
            await cast("StreamedResponse", await route.handler(request)).run()
        finally:
            session.leave()

    @staticmethod
    def refused(error: HoldfastError, head: Head) -> HttpResponse:
        """Logs an error, and returns its problem response."""
        log_refusal(error, _name(head), head.peer)
        return problem_answer(error)


def _name(head: Head) -> str:
    return f"{head.method} {head.path}"[:_LOGGED_CHARS_MAX]


def _other(head: Head, found: RouteMatch) -> HttpResponse:
    """Answers a request with a method that the path does not have."""
    methods = sorted({*found.methods, "OPTIONS", *(["HEAD"] if "GET" in found.methods else [])})
    allowed = ", ".join(methods)
    if head.method == "OPTIONS":
        return HttpResponse(HTTPStatus.NO_CONTENT, headers=[(b"allow", allowed.encode())])
    message = f"the method must be one of {allowed}, got {head.method[:20]}"
    raise HttpError(HTTPStatus.METHOD_NOT_ALLOWED, message, headers={"allow": allowed})
