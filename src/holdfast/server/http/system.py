"""Routes of the system itself: statistics, probes, metrics, and the OpenAPI document."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from holdfast.core.capabilities import Capability
from holdfast.core.condition import ready_text
from holdfast.errors import UnimplementedError
from holdfast.server.auth.permissions import Scope
from holdfast.server.backend import Backend
from holdfast.server.conditions import ReadConditions, no_conditions_here
from holdfast.server.http.request import METRICS_TYPE, TEXT_TYPE, AdmittedRequest, HttpResponse, answer
from holdfast.server.http.routing import PUBLIC, Route
from holdfast.server.http.stats_history import Recent, StatsHistory


class Totals(msgspec.Struct, frozen=True):
    """Counters since this server started; a rate is the difference of two responses."""

    submitted: int
    finished: dict[str, int]
    #: Histograms of wait and run times: upper bounds in milliseconds, and the number of jobs in each bucket.
    wait_ms_bounds: list[int]
    wait_ms_counts: list[int]
    run_ms_bounds: list[int]
    run_ms_counts: list[int]
    leases_expired: int
    reports_fenced: int


class StatsResource(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of the whole system, at one instant."""

    position: int
    now_ms: int
    states: dict[str, int]
    bytes_held: int
    epoch: int
    cluster_id: str
    workers: int
    slots: int
    leases: int
    version: str
    backend: str
    started_at_ms: int
    totals: Totals | None
    #: The size of held jobs above which submits are refused; 0 if it is unknown.
    bytes_held_max: int = 0
    #: Conditions that need the attention of an operator, in sentences.
    warnings: tuple[str, ...] = ()


class CapabilityList(msgspec.Struct, frozen=True, kw_only=True):
    """The capabilities of the backend, and a sentence for each missing one."""

    backend: str
    version: str
    capabilities: list[Capability]
    missing: dict[str, str]


class Probes(msgspec.Struct, frozen=True):
    """The state of the process around the gateway."""

    version: str = ""
    started_at_ms: int = 0
    is_ready: Callable[[], bool] = lambda: True
    #: Problems of a server that is nevertheless ready.
    conditions: ReadConditions = no_conditions_here
    metrics: Callable[[], Awaitable[bytes]] | None = None
    totals: Callable[[], Totals] | None = None


class SystemRoutes:
    """Statistics and probes over HTTP."""

    def __init__(self, backend: Backend, probes: Probes) -> None:
        self._backend = backend
        self._probes = probes
        #: The OpenAPI document; set after the routes are known.
        self.document = b""
        self.memory = StatsHistory(self._numbers)

    async def stats(self, request: AdmittedRequest) -> HttpResponse:
        """Returns the statistics."""
        return answer(await self._numbers())

    async def capabilities(self, request: AdmittedRequest) -> HttpResponse:
        """Returns the capabilities; they do not change while the server runs."""
        told = self._backend.capabilities.served(self._probes.version, has_totals=self._probes.totals is not None)
        return answer(
            CapabilityList(
                backend=told.backend,
                version=told.version,
                capabilities=sorted(told.present),
                missing={one.value: sentence for one, sentence in told.missing.items()},
            )
        )

    async def recent(self, request: AdmittedRequest) -> HttpResponse:
        """Returns statistics of the last minutes."""
        self._backend.capability(self._probes.totals, Capability.TOTALS)
        return answer(self.memory.recent())

    async def remember(self) -> None:
        """Records statistics until it is canceled; returns at once on a server without totals."""
        if self._backend.admin is not None and self._probes.totals is not None:
            await self.memory.run()

    async def stats_json(self) -> bytes:
        """Returns the statistics as JSON, for the event stream."""
        return answer(await self._numbers()).body

    async def _numbers(self) -> StatsResource:
        stats = await self._backend.capability(self._backend.admin, Capability.ADMINISTRATION).stats()
        probes = self._probes
        return StatsResource(
            position=stats.position,
            now_ms=stats.now_ms,
            states=stats.states,
            bytes_held=stats.bytes_held,
            epoch=stats.epoch,
            cluster_id=stats.cluster_id,
            workers=stats.workers,
            slots=stats.slots,
            leases=stats.leases,
            version=probes.version,
            backend=self._backend.name,
            started_at_ms=probes.started_at_ms,
            totals=probes.totals() if probes.totals is not None else None,
            bytes_held_max=stats.bytes_held_max,
            warnings=stats.warnings,
        )

    async def live(self, request: AdmittedRequest) -> HttpResponse:
        """Replies that the server is alive, without any check."""
        return HttpResponse(200, b"alive\n", TEXT_TYPE)

    async def ready(self, request: AdmittedRequest) -> HttpResponse:
        """Replies whether jobs can be submitted."""
        if self._probes.is_ready():
            return HttpResponse(200, ready_text(await self._probes.conditions()).encode(), TEXT_TYPE)
        return HttpResponse(503, b"not ready: it is starting, or goes away soon\n", TEXT_TYPE, [(b"retry-after", b"1")])

    async def metrics(self, request: AdmittedRequest) -> HttpResponse:
        """Returns the metrics in Prometheus format."""
        if self._probes.metrics is None:
            raise UnimplementedError(f"the {self._backend.name} server has no metrics", reason="CAPABILITY_MISSING")
        return HttpResponse(200, await self._probes.metrics(), METRICS_TYPE)

    async def openapi(self, request: AdmittedRequest) -> HttpResponse:
        """Returns the OpenAPI document."""
        return HttpResponse(200, self.document)


def routes(system: SystemRoutes) -> list[Route]:
    """Returns the routes of this module."""

    def text(path: str, scope: Any, handler: Any, summary: str, *statuses: int) -> Route:  # noqa: ANN401 - as Route
        answers = dict.fromkeys((200, *statuses))
        return Route(
            method="GET",
            path=path,
            scope=scope,
            handler=handler,
            summary=summary,
            tag="system",
            answers=answers,
            content="text/plain",
            problems=(501,) if path == "/metrics" else (),
        )

    return [
        Route(
            method="GET",
            path="/api/v1/capabilities",
            scope=Scope.READ,
            handler=system.capabilities,
            summary="List the capabilities of this server, and the missing ones",
            tag="system",
            answers={200: CapabilityList},
        ),
        Route(
            method="GET",
            path="/api/v1/stats",
            scope=Scope.READ,
            handler=system.stats,
            summary="Get statistics of the whole system",
            tag="system",
            answers={200: StatsResource},
            problems=(501,),
        ),
        Route(
            method="GET",
            path="/api/v1/stats/recent",
            scope=Scope.READ,
            handler=system.recent,
            summary="Get statistics of the last minutes",
            tag="system",
            answers={200: Recent},
            problems=(501,),
        ),
        text("/livez", PUBLIC, system.live, "Whether the server is alive"),
        text("/readyz", PUBLIC, system.ready, "Whether the server accepts jobs", 503),
        text("/metrics", Scope.READ, system.metrics, "Metrics for Prometheus"),
        Route(
            method="GET",
            path="/openapi.json",
            scope=PUBLIC,
            handler=system.openapi,
            summary="Get this document",
            tag="system",
            answers={200: dict[str, Any]},
        ),
    ]
