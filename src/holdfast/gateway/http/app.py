"""What becomes of a request: the route is found, shield and guard are asked, the body is read, the handler called.

Every request goes this one way. Nothing is taken of a body before its caller was let in; whatever is not a success is a
problem; a bug is logged, and told to nobody.
"""

import asyncio
from http import HTTPStatus
from typing import cast

from holdfast.errors import HoldfastError, NotFoundError
from holdfast.gateway.backend import Backend
from holdfast.gateway.guarding import Guard, OpenGuard, Scope
from holdfast.gateway.http import assets, events, jobs, openapi, queues, schedules, sessions, short_forms, system
from holdfast.gateway.http.answering import problem_answer
from holdfast.gateway.http.asking import Answer, Asked, Head, Headers, Streamed
from holdfast.gateway.http.problems import HttpError
from holdfast.gateway.http.routing import Found, Router
from holdfast.gateway.http.shielding import PlainShield, Shield
from holdfast.gateway.http.system import Probes
from holdfast.gateway.refusing import hidden, log_refusal

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

    @property
    def headers(self) -> Headers:
        """What every answer says beside its own."""
        return self._shield.headers()

    def admit(self, head: Head) -> Asked | Answer:
        """Lets a request in by its head alone, or answers it."""
        try:
            return self._admitted(head)
        except HoldfastError as error:
            return self.refused(error, head)
        except Exception as error:  # noqa: BLE001 - no request may stop the server
            return self.refused(hidden(error, _name(head)), head)

    def _admitted(self, head: Head) -> Asked | Answer:
        found = self.router.find(head.path)
        if found is None:
            raise NotFoundError(
                "there is nothing at this path; /openapi.json says what there is", reason="PATH_UNKNOWN"
            )
        route = found.methods.get("GET" if head.method == "HEAD" else head.method)
        if route is None:
            return _other(head, found)
        self._shield.check(head, route)
        asked = Asked(head, route, found.params)
        if route.is_stream and head.method != "HEAD":
            asked.over = asyncio.Event()
            return asked
        if isinstance(route.scope, Scope):
            asked.caller = self._guard.admit(self._shield.token(head), head.peer, route.scope)
        asked.read_query(route.query)
        if route.body is not None:
            asked.check_length()
        return asked

    async def answer(self, asked: Asked) -> Answer | None:
        """Answers a request that has arrived; None: the answer was a stream, and is over."""
        route = asked.route
        try:
            if asked.over is not None:
                await self._stay(asked, asked.over)
                return None
            if route.is_stream:
                return Answer(HTTPStatus.OK, b"", events.EVENT_STREAM)
            if route.body is not None:
                await asked.read_json(route.body, is_optional=route.is_body_optional, by_name=route.bodies_by_name)
            return cast("Answer", await route.handler(asked))
        except HoldfastError as error:
            return self.refused(error, asked.head)
        except Exception as error:  # noqa: BLE001 - no request may stop the server
            return self.refused(hidden(error, _name(asked.head)), asked.head)

    async def _stay(self, asked: Asked, over: asyncio.Event) -> None:
        """Somebody who is let in to stay, and loses its place with its right."""
        head, route = asked.head, asked.route
        visit = self._guard.enter(self._shield.token(head), head.peer, route.scope, lambda _: over.set())
        try:
            asked.read_query(route.query)
            await cast("Streamed", await route.handler(asked)).run()
        finally:
            visit.leave()

    @staticmethod
    def refused(error: HoldfastError, head: Head) -> Answer:
        """The problem, which is logged."""
        log_refusal(error, _name(head), head.peer)
        return problem_answer(error)


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
