"""The server of a topology for clients: gRPC, HTTP with the dashboard, probes and metrics over any backend.

    server = PublicServer(Backend(jobs, declared=PIPELINE), settings)  # with its admin, feed and schedules, if any
    addresses = await server.start()  # {"grpc": …, "http": …}, for the ready line
    await server.drain()              # optional: not ready any more, but still serving
    await server.stop()               # answers calls in progress; the caller closes the backend

It uses the settings `host`, `port`, `http_port`, `no_http`, `metrics_port`, `allowed_hosts`, `reflection`,
`grpc_connections`, and those of the protection (`tokens` or the token file in the `data` directory, `tls_*`, the rate
limits, `insecure`). Invariants: the protection is loaded before any port listens; a failed start leaves no port open;
the server is ready from the end of `start` to `drain`, even if the processes behind the backend fail. A ledger server
listens before it has recovered, a gateway before the processes behind it serve: the public server takes over their
`EarlyPorts`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast import __version__
from holdfast.clock import system_clock
from holdfast.ledger.session_messages import LeaseTerms
from holdfast.server.backend import Backend
from holdfast.server.conditions import ReadConditions, of_backend
from holdfast.server.descriptors import ConnectionBudget, allow_many
from holdfast.server.early_ports import addresses_of, http_server, metrics_server, port_of
from holdfast.server.protection import Protection, protect
from holdfast.server.rpc_port import RpcPort, rpc_port
from holdfast.server.wire.connection import ShardServices, WireService
from holdfast.settings import Settings

if TYPE_CHECKING:
    from holdfast.server.early_ports import EarlyPorts
    from holdfast.server.http.browser_security import BrowserShield
    from holdfast.server.http.metrics_application import MetricsApplication
    from holdfast.server.http.request_handler import RequestHandler
    from holdfast.server.http.server import HttpServer
    from holdfast.server.http.system import Probes, Totals

#: How long calls in progress may take when a server stops.
GRACE_S = 2.0
#: For a server without workers of its own.
NO_TERMS = LeaseTerms(0, 0)
#: The metrics of the network front in Prometheus format, the same for every topology.
_FRONT_PAGE = """\
# HELP holdfast_certificate_reloads_total Changed certificates, by whether they could be used.
# TYPE holdfast_certificate_reloads_total counter
holdfast_certificate_reloads_total{{outcome="taken"}} {taken}
holdfast_certificate_reloads_total{{outcome="refused"}} {refused}
# HELP holdfast_grpc_connections_ended_total Connections closed above the limit of those without an admitted call.
# TYPE holdfast_grpc_connections_ended_total counter
holdfast_grpc_connections_ended_total {ended}
# HELP holdfast_warnings Problems that an operator should check, as in /readyz, of this process and those behind it.
# TYPE holdfast_warnings gauge
holdfast_warnings {warnings}
"""


class MetricsSource(Protocol):
    """The source of `/metrics` and of the totals of the dashboard."""

    async def page(self) -> bytes:
        """Returns the metrics in Prometheus format."""
        ...

    @property
    def totals(self) -> "Callable[[], Totals] | None":
        """The totals of all jobs; None if they are unknown."""
        ...


class PublicServer:
    """All interfaces for clients and people. `start`, then `stop`; it cannot be started again."""

    def __init__(  # noqa: PLR0913 - the parts that it joins
        self,
        backend: Backend,
        settings: Settings,
        *,
        protection: Protection | None = None,
        measures: MetricsSource | None = None,
        terms: LeaseTerms = NO_TERMS,
        has_grpc: bool = True,
        conditions: ReadConditions | None = None,
        early: "EarlyPorts | None" = None,
        budget: ConnectionBudget | None = None,
        shards: ShardServices | None = None,
    ) -> None:
        """Without a `protection` it is loaded; `FailedPreconditionError` if protection is missing or damaged.

        Without `measures` the calls through this server are counted; without `terms` no workers connect here.
        Without `conditions` they are the warnings of the backend. `early` are ports that already listen. `budget` is
        the one of the process, if it has several servers. `shards` are those of a cluster.
        """
        allow_many()
        self._early = early
        self.protection = protection or protect(settings)
        self._settings = settings
        self._measures = measures
        #: The problems that `/readyz` and the metrics show.
        self.conditions = conditions or of_backend(backend.admin)
        if measures is None and is_measured(settings):
            # A server with neither HTTP nor metrics does not import them.
            from holdfast.server.gateway_metrics import GatewayMetrics  # noqa: PLC0415

            self._measures = counted = GatewayMetrics(backend)
            backend = counted.backend
        has_totals = self._measures is not None and self._measures.totals is not None
        declared = backend.declared.served(__version__, has_totals=has_totals)
        #: The backend with the capabilities that are served here.
        self.backend = msgspec.structs.replace(backend, declared=declared)
        self.addresses: dict[str, str] = {}
        self.is_ready = False
        #: The connections on all ports of this process.
        self.budget = budget or ConnectionBudget()
        self._wire = WireService(
            self.backend,
            terms,
            guard=self.protection.guard,
            connections_max=settings.grpc_connections,
            budget=self.budget,
            shards=shards,
        )
        self._rpc = self._rpc_port(terms) if has_grpc else None
        self._application = self._http_application()
        self._http = self._http_server(self._application)
        self._metrics_application = self._make_metrics_application() if settings.metrics_port else None
        self._metrics = self._metrics_server(self._metrics_application) if self._metrics_application else None

    async def start(self) -> dict[str, str]:
        """Listens, and returns the addresses by protocol; `UnavailableError` if a port is not available."""
        try:
            await self._listen()
        except BaseException:
            await self.stop(0)
            raise
        self.protection.start()
        self.is_ready = True
        return self.addresses

    async def _listen(self) -> None:
        if self._early is not None:
            await self._take_over(self._early)
            return
        settings, metrics, rpc = self._settings, "", {}
        if self._metrics is not None:
            metrics = await self._metrics.start(settings.host, settings.metrics_port)
        http = await self._http.start(settings.host, settings.wire_port)
        if self._rpc is not None:
            self._rpc.wire_port = port_of(http)
            rpc = {self._rpc.name: await self._rpc.start(settings.host, settings.port)}
        self.addresses = addresses_of(settings, {**rpc, "http": http, "metrics": metrics})

    async def _take_over(self, early: "EarlyPorts") -> None:
        """Serves the backend on the ports that already listen."""
        early.startup.is_over = True
        self._http.serve(self._application, self._wire.connection)
        if self._metrics is not None and self._metrics_application is not None:
            self._metrics.serve(self._metrics_application)
        if self._rpc is not None:
            await self._rpc.start(self._settings.host, self._settings.port)
        self.addresses = early.addresses

    @property
    def measures(self) -> MetricsSource | None:
        """The metrics of this server, if it has any."""
        return self._measures

    async def drain(self) -> None:
        """Reports that the server will stop soon, and continues to serve."""
        self.is_ready = False
        if self._rpc is not None:
            await self._rpc.drain()

    async def stop(self, grace_s: float = GRACE_S) -> None:
        """Accepts no more requests, answers those in progress, and closes everything."""
        await self.drain()
        stopping: list[Awaitable[None]] = [self._http.stop(grace_s), self._wire.stop(grace_s)]
        if self._rpc is not None:
            stopping.append(self._rpc.stop(grace_s))
        await asyncio.gather(*stopping)
        self.protection.stop()
        if self._metrics is not None:
            await self._metrics.stop(0)

    def _rpc_port(self, terms: LeaseTerms) -> RpcPort:
        early = self._early.rpc if self._early is not None else None
        port = early or rpc_port(self._settings, self.protection)
        port.add(self.backend, terms, self._wire)
        return port

    def _http_server(self, application: "RequestHandler") -> "HttpServer":
        if self._early is not None:
            return self._early.http
        return http_server(application, self.protection, self._wire, self.budget.http_share)

    def _metrics_server(self, application: "MetricsApplication") -> "HttpServer":
        if self._early is not None and self._early.metrics is not None:
            return self._early.metrics
        return metrics_server(application)

    def _http_application(self) -> "RequestHandler":
        """Makes the HTTP application over the same backend; with --no-http, one that serves nothing."""
        if self._settings.no_http:
            from holdfast.server.http.request_handler import RequestHandler  # noqa: PLC0415

            return RequestHandler([], "HTTP is turned off by --no-http", self.protection.guard, self._shield())
        # A server without HTTP does not import its routes.
        from holdfast.server.http.application import Application  # noqa: PLC0415

        return Application(self.backend, self.protection.guard, self._shield(), self._probes())

    def _make_metrics_application(self) -> "MetricsApplication":
        from holdfast.server.http.metrics_application import MetricsApplication  # noqa: PLC0415 - as above

        return MetricsApplication(self.backend, self._shield(), self._probes())

    def _shield(self) -> "BrowserShield":
        from holdfast.server.http.browser_security import BrowserShield  # noqa: PLC0415 - as above

        return BrowserShield(self._settings.host, self._settings.allowed_hosts.split(","))

    def _probes(self) -> "Probes":
        from holdfast.server.http.system import Probes  # noqa: PLC0415 - as above

        assert self._measures is not None, "a server with HTTP or metrics has measures"
        return Probes(
            version=__version__,
            started_at_ms=system_clock().wall_ms(),
            is_ready=lambda: self.is_ready,
            conditions=self.conditions,
            metrics=self._page,
            totals=self._measures.totals,
        )

    async def _page(self) -> bytes:
        """Returns the metrics of the backend and of the network front in Prometheus format."""
        assert self._measures is not None, "a server with HTTP or metrics has measures"
        certificates, rpc = self.protection.certificates, self._rpc
        own = _front_page(
            certificates_taken=certificates.reloads if certificates is not None else 0,
            certificates_refused=certificates.failures if certificates is not None else 0,
            connections_ended=rpc.connections_ended if rpc is not None else 0,
            warnings=len(await self.conditions()),
        )
        return await self._measures.page() + own


def is_measured(settings: Settings) -> bool:
    """Whether metrics can be read; otherwise nothing is counted or imported."""
    return bool(settings.metrics_port) or not settings.no_http


def _front_page(*, certificates_taken: int, certificates_refused: int, connections_ended: int, warnings: int) -> bytes:
    """Renders the metrics of the network front."""
    return _FRONT_PAGE.format(
        taken=certificates_taken, refused=certificates_refused, ended=connections_ended, warnings=warnings
    ).encode()
