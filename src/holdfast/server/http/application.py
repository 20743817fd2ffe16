"""The HTTP application: all routes over one backend, and its background tasks."""

import asyncio

from holdfast.server.auth.permissions import Guard, OpenGuard
from holdfast.server.backend import Backend
from holdfast.server.http import assets, events, jobs, openapi, queues, schedules, sessions, short_forms, system
from holdfast.server.http.request_handler import RequestHandler
from holdfast.server.http.request_shield import PlainShield, Shield
from holdfast.server.http.system import Probes


class Application(RequestHandler):
    """The HTTP interface for clients and browsers."""

    def __init__(
        self,
        backend: Backend,
        guard: Guard | None = None,
        shield: Shield | None = None,
        probes: Probes | None = None,
    ) -> None:
        guard, shield, probes = guard or OpenGuard(), shield or PlainShield(), probes or Probes()
        job_routes, schedule_routes = jobs.JobRoutes(backend), schedules.ScheduleRoutes(backend)
        self._system = system.SystemRoutes(backend, probes)
        self._events = events.EventRoutes(backend, self._system)
        self._remembering: asyncio.Task[None] | None = None
        table = [
            *jobs.routes(job_routes),
            *queues.routes(queues.QueueRoutes(backend)),
            *schedules.routes(schedule_routes),
            *events.routes(self._events),
            *system.routes(self._system),
            *short_forms.routes(short_forms.ShortForms(backend, job_routes, schedule_routes)),
            *sessions.routes(sessions.SessionRoutes(guard, shield)),
            *assets.routes(),
        ]
        super().__init__(table, "see /openapi.json", guard, shield)
        self._system.document = openapi.document(self.router.routes, probes.version)

    def start(self) -> None:
        """Starts recording statistics of the last minutes."""
        self._remembering = asyncio.create_task(self._system.remember())

    async def close(self) -> None:
        """Stops recording, and ends the event streams."""
        if self._remembering is not None:
            self._remembering.cancel()
            await asyncio.wait([self._remembering])
        await self._events.close()
