"""The system itself: numbers, probes, metrics, and the document of this API."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from holdfast.core.capabilities import Capability
from holdfast.core.condition import Conditions, no_conditions, ready_text
from holdfast.errors import UnimplementedError
from holdfast.server.auth.permissions import Scope
from holdfast.server.backend import Backend
from holdfast.server.http.request import METRICS_TYPE, TEXT_TYPE, Answer, Asked, answer
from holdfast.server.http.routing import EVERYBODY, Route
from holdfast.server.http.stats_history import Recent, StatsHistory


class Totals(msgspec.Struct, frozen=True):
    """What was counted since this server started: rates are differences of two answers."""

    submitted: int
    finished: dict[str, int]
    #: How long jobs waited and ran: upper bounds in milliseconds, how many stayed below each, and how many above.
    wait_ms_bounds: list[int]
    wait_ms_counts: list[int]
    run_ms_bounds: list[int]
    run_ms_counts: list[int]
    leases_expired: int
    reports_fenced: int


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """The whole system in numbers, at one instant."""

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
    #: The size of held jobs above which submits are refused; 0: it is not known here.
    bytes_held_max: int = 0
    #: What an operator should look at, in sentences.
    warnings: tuple[str, ...] = ()


class CapabilityList(msgspec.Struct, frozen=True, kw_only=True):
    """What the backend behind this server can do beside jobs, and a sentence for each thing that it cannot."""

    backend: str
    version: str
    capabilities: list[Capability]
    missing: dict[str, str]


class Probes(msgspec.Struct, frozen=True):
    """What the process around the gateway knows."""

    version: str = ""
    started_at_ms: int = 0
    is_ready: Callable[[], bool] = lambda: True
    #: What is not as it should be although the server is ready.
    conditions: Conditions = no_conditions
    metrics: Callable[[], Awaitable[bytes]] | None = None
    totals: Callable[[], Totals] | None = None


class SystemRoutes:
    """Numbers and probes over HTTP."""

    def __init__(self, backend: Backend, probes: Probes) -> None:
        self._backend = backend
        self._probes = probes
        #: The OpenAPI document, once it is known.
        self.document = b""
        self.memory = StatsHistory(self._numbers)

    async def stats(self, asked: Asked) -> Answer:
        """The whole system in numbers."""
        return answer(await self._numbers())

    async def capabilities(self, asked: Asked) -> Answer:
        """What can be asked here; it does not change while the server runs."""
        told = self._backend.capabilities.served(self._probes.version, has_totals=self._probes.totals is not None)
        return answer(
            CapabilityList(
                backend=told.backend,
                version=told.version,
                capabilities=sorted(told.present),
                missing={one.value: sentence for one, sentence in told.missing.items()},
            )
        )

    async def recent(self, asked: Asked) -> Answer:
        """The last minutes in numbers."""
        self._backend.capability(self._probes.totals, Capability.TOTALS)
        return answer(self.memory.recent())

    async def remember(self) -> None:
        """Keeps the last minutes until it is canceled; ends at once where nothing is counted."""
        if self._backend.admin is not None and self._probes.totals is not None:
            await self.memory.run()

    async def stats_json(self) -> bytes:
        """The same for who is told again and again."""
        return answer(await self._numbers()).body

    async def _numbers(self) -> Stats:
        stats = await self._backend.capability(self._backend.admin, Capability.ADMINISTRATION).stats()
        probes = self._probes
        return Stats(
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

    async def live(self, asked: Asked) -> Answer:
        """It answers, so it lives; nothing else is asked."""
        return Answer(200, b"alive\n", TEXT_TYPE)

    async def ready(self, asked: Asked) -> Answer:
        """Whether jobs can be submitted."""
        if self._probes.is_ready():
            return Answer(200, ready_text(self._probes.conditions()).encode(), TEXT_TYPE)
        return Answer(503, b"not ready: it is starting, or goes away soon\n", TEXT_TYPE, [(b"retry-after", b"1")])

    async def metrics(self, asked: Asked) -> Answer:
        """For Prometheus."""
        if self._probes.metrics is None:
            raise UnimplementedError(
                f"no metrics: the {self._backend.name} server counts nothing", reason="CAPABILITY_MISSING"
            )
        return Answer(200, await self._probes.metrics(), METRICS_TYPE)

    async def openapi(self, asked: Asked) -> Answer:
        """The document of this API."""
        return Answer(200, self.document)


def routes(system: SystemRoutes) -> list[Route]:
    """What this part of the table says."""

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
            summary="What can be asked here, and what cannot",
            tag="system",
            answers={200: CapabilityList},
        ),
        Route(
            method="GET",
            path="/api/v1/stats",
            scope=Scope.READ,
            handler=system.stats,
            summary="The whole system in numbers",
            tag="system",
            answers={200: Stats},
            problems=(501,),
        ),
        Route(
            method="GET",
            path="/api/v1/stats/recent",
            scope=Scope.READ,
            handler=system.recent,
            summary="The last minutes in numbers",
            tag="system",
            answers={200: Recent},
            problems=(501,),
        ),
        text("/livez", EVERYBODY, system.live, "Whether it lives"),
        text("/readyz", EVERYBODY, system.ready, "Whether it takes jobs", 503),
        text("/metrics", Scope.READ, system.metrics, "For Prometheus"),
        Route(
            method="GET",
            path="/openapi.json",
            scope=EVERYBODY,
            handler=system.openapi,
            summary="This document",
            tag="system",
            answers={200: dict[str, Any]},
        ),
    ]
