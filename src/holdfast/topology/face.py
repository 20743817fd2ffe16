"""The face of a topology: gRPC, HTTP with the dashboard, probes and metrics over one backend, whatever keeps the jobs.

    face = Face(Backend(jobs, declared=PIPELINE), settings)   # admin, feed and schedules too, where there are any
    addresses = await face.start()                          # {"grpc": …, "http": …}: what the ready line names
    await face.drain()                                      # optional: not ready any more, and serving on
    await face.stop()                                       # answers what is under way; the backend is yours to close

Of the settings it heeds `host`, `port`, `http_port`, `no_http`, `metrics_port`, `allowed_hosts`, `reflection`, and what
protects a server (`tokens` or those of the `data` directory, `tls_*`, the rate limits, `insecure`). Invariants: what
protects is known before anything listens; a start that fails leaves nothing listening; it is ready from the end of
`start` to `drain`, whatever becomes of those behind the backend.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast import __version__
from holdfast.clock import system_clock
from holdfast.gateway.backend import Backend
from holdfast.gateway.grpc.server import GrpcServer
from holdfast.observe.endpoint import Endpoint
from holdfast.proto.holdfast_pb2 import Welcome
from holdfast.settings import Settings
from holdfast.topology.descriptors import allow_many
from holdfast.topology.protecting import Protection, protect

if TYPE_CHECKING:
    from holdfast.gateway.http.server import HttpServer
    from holdfast.gateway.http.system import Totals

#: How long calls under way may take when a server stops.
GRACE_S = 2.0


class Measures(Protocol):
    """Who counts, for `/metrics` and for the numbers of the dashboard."""

    async def page(self) -> bytes:
        """The numbers as Prometheus reads them."""
        ...

    @property
    def totals(self) -> "Callable[[], Totals] | None":
        """What became of all jobs; None where that is not known."""
        ...


class Face:
    """Everything that clients and people reach. `start`, then `stop`; it cannot be started again."""

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        *,
        protection: Protection | None = None,
        measures: Measures | None = None,
        welcome: Welcome | None = None,
        has_grpc: bool = True,
    ) -> None:
        """What is not given is made here: `FailedPreconditionError` says what protection is missing or damaged.

        Without `measures` what passes through here is counted; without a `welcome` no workers connect here.
        """
        self.protection = protection or protect(settings)
        self._settings = settings
        self._measures = measures
        if measures is None and is_measured(settings):
            # Who has neither HTTP nor metrics pays nothing for them.
            from holdfast.topology.gateway_metrics import GatewayMetrics  # noqa: PLC0415

            self._measures = counted = GatewayMetrics(backend)
            backend = counted.backend
        has_totals = self._measures is not None and self._measures.totals is not None
        declared = backend.declared.served(__version__, has_totals=has_totals)
        #: As it is served here.
        self.backend = msgspec.structs.replace(backend, declared=declared)
        self.addresses: dict[str, str] = {}
        self.is_ready = False
        self._grpc = self._grpc_server(welcome or Welcome()) if has_grpc else None
        self._http = None if settings.no_http else self._http_server()
        self._endpoint = Endpoint(self._measures.page) if self._measures is not None else None

    async def start(self) -> dict[str, str]:
        """Listens, and returns the addresses by protocol; `UnavailableError` if a port cannot be had."""
        allow_many()
        try:
            await self._listen()
        except BaseException:
            await self.stop(0)
            raise
        self.protection.guard.start()
        self._set_ready(is_ready=True)
        return self.addresses

    async def _listen(self) -> None:
        settings, metrics, http, grpc = self._settings, "", "", ""
        if self._endpoint is not None and settings.metrics_port:
            metrics = await self._endpoint.start(settings.host, settings.metrics_port)
        if self._http is not None:
            http = await self._http.start(settings.host, settings.http_port)
        if self._grpc is not None:
            grpc = await self._grpc.start(settings.host, settings.port)
        named = {"grpc": grpc, "http": http, "metrics": metrics}
        self.addresses = {name: address for name, address in named.items() if address}

    def _set_ready(self, *, is_ready: bool) -> None:
        self.is_ready = is_ready
        if self._endpoint is not None:
            self._endpoint.is_ready = is_ready

    @property
    def measures(self) -> Measures | None:
        """Who counts what passes through here, if anybody does."""
        return self._measures

    async def drain(self) -> None:
        """Says that it goes away soon, and serves on."""
        self._set_ready(is_ready=False)
        if self._grpc is not None:
            await self._grpc.drain()

    async def stop(self, grace_s: float = GRACE_S) -> None:
        """Takes no more requests, answers those under way, and closes everything."""
        await self.drain()
        stopping: list[Awaitable[None]] = [one.stop(grace_s) for one in (self._grpc, self._http) if one is not None]
        await asyncio.gather(*stopping)
        self.protection.guard.stop()
        if self._endpoint is not None:
            await self._endpoint.stop()

    def _grpc_server(self, welcome: Welcome) -> GrpcServer:
        return GrpcServer(
            self.backend,
            welcome,
            has_reflection=self._settings.reflection,
            guard=self.protection.guard,
            certificates=self.protection.certificates,
        )

    def _http_server(self) -> "HttpServer":
        """HTTP over the same ports."""
        # Who serves gRPC alone pays nothing for it.
        from holdfast.gateway.http.app import Application  # noqa: PLC0415
        from holdfast.gateway.http.securing import BrowserShield  # noqa: PLC0415
        from holdfast.gateway.http.server import HttpServer  # noqa: PLC0415
        from holdfast.gateway.http.system import Probes  # noqa: PLC0415

        measures = self._measures
        assert measures is not None, "what is served over HTTP is measured"
        probes = Probes(
            version=__version__,
            started_at_ms=system_clock().wall_ms(),
            is_ready=lambda: self.is_ready,
            metrics=measures.page,
            totals=measures.totals,
        )
        settings, certificates = self._settings, self.protection.certificates
        shield = BrowserShield(settings.host, settings.allowed_hosts.split(","))
        application = Application(self.backend, self.protection.guard, shield, probes)
        return HttpServer(application, tls=certificates.context if certificates is not None else None)


def is_measured(settings: Settings) -> bool:
    """Whether anybody can ask for numbers; else nothing is counted or imported."""
    return bool(settings.metrics_port) or not settings.no_http
