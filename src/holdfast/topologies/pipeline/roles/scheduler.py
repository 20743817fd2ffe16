"""The scheduler: writes jobs into the database, reads them from there, and fires schedules while it leads.

It serves people (`/schedule`, `/jobs`, `/job`, `/health`) and gateways (`/ports/…`) over HTTP. It stores nothing
itself, and any number of schedulers may share one database. It is ready while the database responds. A scheduler that
is cut off from the database keeps running, but gateways skip it.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from holdfast.core.capabilities import Capability
from holdfast.core.model import QUADRATIC, BackoffRule
from holdfast.errors import HoldfastError, UnavailableError
from holdfast.ports import AdminApi, HistoryApi, JobApi, ScheduleApi
from holdfast.server.auth.permissions import Scope
from holdfast.server.backend import Backend, ShortRetries
from holdfast.server.http.jobs import JobRoutes
from holdfast.server.http.request import AdmittedRequest, HttpResponse
from holdfast.server.http.routing import Handler, Route
from holdfast.server.http.schedules import ScheduleRoutes
from holdfast.server.http.short_forms import IdFilter, ShortBody, ShortFilters, ShortForms
from holdfast.topologies.pipeline.backend.port_rpc import Handle, LongPolls, routes
from holdfast.topologies.pipeline.backend.role_loops import going_on
from holdfast.topologies.pipeline.roles.backoff import Outage
from holdfast.topologies.pipeline.roles.role_health import RoleHealth
from holdfast.topologies.pipeline.roles.role_server import MSGPACK_TYPE

#: The interval of the checks of the database, and how long a successful one counts.
_PING_S, _SILENCE_S = 0.5, 2.0


def short_retries(retries: int, retry_ms: int) -> ShortRetries:
    """Returns the retries of jobs of the short endpoints: the delay of the n-th retry is n squared times the base."""
    return ShortRetries(retries + 1, BackoffRule(QUADRATIC, retry_ms))


def port_routes(
    jobs: JobApi,
    admin: AdminApi,
    schedules: ScheduleApi,
    histories: HistoryApi,
    waits: LongPolls | None = None,
) -> list[Route]:
    """Returns the routes for gateways."""
    return [
        Route(
            method="POST",
            path=path,
            scope=Scope.ADMIN,
            handler=_carried(handle),
            summary="A method of a port, as MessagePack",
            tag="role",
            body=bytes,
        )
        for path, handle in routes(jobs, admin, schedules, histories, waits).items()
    ]


def _carried(handle: Handle) -> Handler:
    async def answer(request: AdmittedRequest) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, await handle(request.content), MSGPACK_TYPE)

    return answer


def people_routes(backend: Backend) -> list[Route]:
    """Returns the routes for people, in the short forms of the gateway."""
    short = ShortForms(backend, JobRoutes(backend), ScheduleRoutes(backend))

    def route(method: str, path: str, scope: Scope, handler: Handler, summary: str, **more: Any) -> Route:  # noqa: ANN401 - as Route
        return Route(method=method, path=path, scope=scope, handler=handler, summary=summary, tag="role", **more)

    return [
        route("POST", "/schedule", Scope.SUBMIT, short.submit, "Submit a job or a cron job", body=ShortBody),
        route("GET", "/jobs", Scope.READ, short.find, "Jobs of a status", query=ShortFilters),
        route("GET", "/job", Scope.READ, short.get, "One job", query=IdFilter),
    ]


class Leader(Protocol):
    """The methods of `CronLeader` that a scheduler needs."""

    @property
    def is_leading(self) -> bool: ...
    @property
    def epoch(self) -> int: ...
    @property
    def ticks(self) -> Mapping[str, int]: ...
    def start(self) -> None: ...
    async def stop(self) -> None: ...


class SchedulerRole:
    """One scheduler. `start`, then `stop`."""

    def __init__(self, backend: Backend, leader: Leader, ping: Callable[[], Awaitable[object]]) -> None:
        """`ping` checks the database of `backend`."""
        self._backend = backend
        self._leader = leader
        self._database = DatabaseWatch(ping)
        self._waits = LongPolls(backend.jobs)

    def routes(self) -> list[Route]:
        """Returns the routes of this role."""
        backend = self._backend
        admin = backend.capability(backend.admin, Capability.ADMINISTRATION)
        schedules = backend.capability(backend.schedules, Capability.SCHEDULES)
        return [*people_routes(backend), *port_routes(backend.jobs, admin, schedules, backend.history, self._waits)]

    def vitals(self) -> RoleHealth:
        """Returns the health and the metrics of this role."""
        return RoleHealth(
            "scheduler",
            is_ready=lambda: self._database.is_there,
            health=self._health,
            families=self._families,
            on_stop=self._waits.let_go,
        )

    async def start(self) -> None:
        """Checks the database, and starts to compete for the leadership."""
        await self._database.start()
        self._leader.start()

    async def stop(self) -> None:
        """Resigns the leadership, and stops the checks of the database."""
        await self._leader.stop()
        await self._database.stop()

    def _health(self) -> Mapping[str, Any]:
        return {"leader": self._leader.is_leading, "epoch": self._leader.epoch, **self._database.words}

    def _families(self) -> Iterator[Metric]:
        ticks = CounterMetricFamily("holdfast_schedule_ticks", "Ticks that it has processed.", labels=("outcome",))
        for outcome, count in self._leader.ticks.items():
            ticks.add_metric((outcome,), count)
        yield ticks
        yield GaugeMetricFamily("holdfast_leader", "Whether this scheduler leads.", value=self._leader.is_leading)
        there = self._database.is_there
        yield GaugeMetricFamily("holdfast_scheduler_database", "Whether the database responds.", value=there)


class DatabaseWatch:
    """Checks in the background whether the database responds, so that requests need not wait for it."""

    def __init__(self, ping: Callable[[], Awaitable[object]]) -> None:
        self._ping = ping
        self._heard_s = float("-inf")
        self._outage = Outage("the database")
        self._task: asyncio.Task[None] | None = None

    @property
    def is_there(self) -> bool:
        """Whether the database responded lately."""
        return time.monotonic() - self._heard_s < _SILENCE_S

    @property
    def words(self) -> Mapping[str, str]:
        """The same as a field of `/health`."""
        return {"database": "reachable" if self.is_there else "away"}

    async def start(self) -> None:
        """Checks the database once, and from then on periodically."""
        await self._look()
        self._task = asyncio.create_task(going_on(self._keep_looking))

    async def stop(self) -> None:
        """Stops the checks."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(_PING_S)
            await self._look()

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(_SILENCE_S):
                await self._ping()
        except TimeoutError:
            self._outage.failed(UnavailableError(f"it did not answer within {_SILENCE_S:g} s"))
        except HoldfastError as error:
            self._outage.failed(error)
        else:
            self._heard_s = time.monotonic()
            self._outage.ended()
