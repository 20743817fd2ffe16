"""The ASGI application: finds the route, asks shield and guard, reads the request, calls the handler, answers.

Every request goes this one way. Nothing is read of a body before its caller was let in; whatever is not a success is a
problem; a bug is logged, and told to nobody.
"""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, cast

import msgspec

from holdfast.errors import HoldfastError, NotFoundError
from holdfast.gateway.backend import Backend
from holdfast.gateway.guarding import Guard, OpenGuard, Scope
from holdfast.gateway.http import assets, events, jobs, openapi, queues, schedules, sessions, short_forms, system
from holdfast.gateway.http.answering import send_answer
from holdfast.gateway.http.asking import Answer, Asked, Head, Headers, Receive, Send, Streamed
from holdfast.gateway.http.problems import PROBLEM_TYPE, HttpError, headers_of, problem_of, status_of
from holdfast.gateway.http.routing import Found, Route, Router
from holdfast.gateway.http.shielding import PlainShield, Shield
from holdfast.gateway.http.system import Probes
from holdfast.gateway.refusing import hidden, log_refusal

Stay = Callable[[Receive, Send, Headers], Awaitable[None]]
_ENCODER = msgspec.json.Encoder()
_LOGGED_CHARS_MAX = 128


class Application:
    """Everything that is served over HTTP."""

    def __init__(
        self,
        backend: Backend,
        guard: Guard | None = None,
        shield: Shield | None = None,
        probes: Probes | None = None,
    ) -> None:
        self._guard: Guard = guard or OpenGuard()
        self._shield: Shield = shield or PlainShield()
        job_routes, schedule_routes = jobs.JobRoutes(backend), schedules.ScheduleRoutes(backend)
        system_routes = self._system = system.SystemRoutes(backend, probes or Probes())
        self._remembering: asyncio.Task[None] | None = None
        self._events = events.EventRoutes(backend, system_routes)
        self.router = Router(
            [
                *jobs.routes(job_routes),
                *queues.routes(queues.QueueRoutes(backend)),
                *schedules.routes(schedule_routes),
                *events.routes(self._events),
                *system.routes(system_routes),
                *short_forms.routes(short_forms.ShortForms(backend, job_routes, schedule_routes)),
                *sessions.routes(sessions.SessionRoutes(self._guard, self._shield)),
                *assets.routes(),
            ]
        )
        system_routes.document = openapi.document(self.router.routes, (probes or Probes()).version)

    def start(self) -> None:
        """Begins to remember the last minutes."""
        self._remembering = asyncio.create_task(self._system.remember())

    async def close(self) -> None:
        """Ends the feeds."""
        if self._remembering is not None:
            self._remembering.cancel()
        await self._events.close()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """One request."""
        client = scope["client"]
        head = Head(
            scope["method"],
            scope["raw_path"].decode("ascii"),
            scope["headers"],
            f"{client[0]}:{client[1]}" if client else "",
            scope["scheme"] == "https",
        )
        headers: Headers = []
        try:
            headers = self._shield.headers(head)
            answer = await self._answer(head, scope, receive)
            if not isinstance(answer, Answer):
                await answer(receive, send, headers)
                return
        except HoldfastError as error:
            answer = self._refused(error, head)
        except Exception as error:  # noqa: BLE001 - no request may stop the server
            answer = self._refused(hidden(error, _name(head)), head)
        await send_answer(scope, answer, headers, send)

    async def _answer(self, head: Head, scope: dict[str, Any], receive: Receive) -> Any:  # noqa: ANN401 - an answer
        found = self.router.find(head.path)
        if found is None:
            raise NotFoundError(
                "there is nothing at this path; /openapi.json says what there is", reason="PATH_UNKNOWN"
            )
        route = found.methods.get("GET" if head.method == "HEAD" else head.method)
        if route is None:
            return _other(head, found)
        self._shield.check(head, route)
        asked = Asked(head, scope["query_string"], receive, found.params)
        asked.line = scope.get("holdfast.line")
        if route.is_stream and head.method != "HEAD":
            return self._staying(asked, route)
        if isinstance(route.scope, Scope):
            asked.caller = self._guard.admit(self._shield.token(head), head.peer, route.scope)
        asked.read_query(route.query)
        if route.is_stream:
            return Answer(HTTPStatus.OK, b"", events.EVENT_STREAM)
        if route.body is not None:
            await asked.read_json(route.body, is_optional=route.is_body_optional, by_name=route.bodies_by_name)
        return await route.handler(asked)

    def _staying(self, asked: Asked, route: Route) -> Stay:
        """Somebody who is let in to stay, and loses its place with its right."""
        head = asked.head
        visit = self._guard.enter(self._shield.token(head), head.peer, route.scope, lambda _: asked.expired.set())

        async def stay(receive: Receive, send: Send, headers: Headers) -> None:
            try:
                asked.read_query(route.query)
                stream = cast("Streamed", await route.handler(asked))
                await stream.run(receive, send, headers)
            finally:
                visit.leave()

        return stay

    @staticmethod
    def _refused(error: HoldfastError, head: Head) -> Answer:
        log_refusal(error, _name(head), head.peer)
        headers = [(name.encode(), value.encode()) for name, value in headers_of(error).items()]
        return Answer(status_of(error), _ENCODER.encode(problem_of(error)), PROBLEM_TYPE, headers)


def _name(head: Head) -> str:
    return f"{head.method} {head.path}"[:_LOGGED_CHARS_MAX]


def _other(head: Head, found: Found) -> Answer:
    """For a method that no row has."""
    methods = sorted({*found.methods, "OPTIONS", *(["HEAD"] if "GET" in found.methods else [])})
    allowed = ", ".join(methods)
    if head.method == "OPTIONS":
        return Answer(HTTPStatus.NO_CONTENT, headers=[(b"allow", allowed.encode())])
    message = f"expected the method to be one of {allowed}, got {head.method[:20]}"
    raise HttpError(HTTPStatus.METHOD_NOT_ALLOWED, message, headers={"allow": allowed})
