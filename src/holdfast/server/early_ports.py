"""The ports of a server during its start: they answer probes, and refuse all other requests as retryable.

`PublicServer` takes over these listening ports once there is a backend.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from holdfast import limits
from holdfast.server.descriptors import HTTP_SHARE, METRICS_SHARE, allow_many
from holdfast.server.protection import Protection
from holdfast.server.rpc_port import rpc_port
from holdfast.server.startup import Startup
from holdfast.server.wire.connection import RefusingService, WireService
from holdfast.settings import Settings

if TYPE_CHECKING:
    from holdfast.server.http.request_handler import RequestHandler
    from holdfast.server.http.server import HttpServer

#: How often a gateway asks whether the processes that store the jobs serve.
_ASK_S = 0.05


class EarlyPorts:
    """The listening ports during a start. `open`, then `close` if the start fails."""

    def __init__(self, settings: Settings, protection: Protection, startup: Startup, *, has_grpc: bool = True) -> None:
        self._settings = settings
        self.startup = startup
        self.rpc = rpc_port(settings, protection, startup) if has_grpc else None
        self.http = http_server(_application(settings, startup), protection, RefusingService(startup.error))
        self.metrics = metrics_server(_application(settings, startup)) if settings.metrics_port else None
        #: The addresses by protocol.
        self.addresses: dict[str, str] = {}

    async def open(self) -> None:
        """Listens on every port; `UnavailableError` if one is not available, with none left open."""
        allow_many()
        settings, metrics, rpc = self._settings, "", {}
        try:
            if self.metrics is not None:
                metrics = await self.metrics.start(settings.host, settings.metrics_port)
            http = await self.http.start(settings.host, settings.wire_port)
            if self.rpc is not None:
                self.rpc.wire_port = port_of(http)
                rpc = {self.rpc.name: await self.rpc.listen(settings.host, settings.port)}
        except BaseException:
            await self.close()
            raise
        self.addresses = addresses_of(settings, {**rpc, "http": http, "metrics": metrics})

    async def open_until(self, ready: Callable[[], Awaitable[int]], total: int) -> None:
        """Listens, and returns when `total` processes are `ready`. Raises `StartStoppedError`; then nothing is open."""
        await self.open()
        try:
            while (count := await ready()) < total:
                self.startup.tell("processes", count, total)
                await asyncio.sleep(_ASK_S)
            self.startup.tell("processes", total, total)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Closes all ports at once."""
        if self.rpc is not None:
            await self.rpc.stop(0)
        await self.http.stop(0)
        if self.metrics is not None:
            await self.metrics.stop(0)


def _application(settings: Settings, startup: Startup) -> "RequestHandler":
    # A server with gRPC alone does not import HTTP.
    from holdfast.server.http.browser_security import BrowserShield  # noqa: PLC0415
    from holdfast.server.http.startup_application import StartingApplication  # noqa: PLC0415

    return StartingApplication(startup, BrowserShield(settings.host, settings.allowed_hosts.split(",")))


def addresses_of(settings: Settings, listening: dict[str, str]) -> dict[str, str]:
    """Returns the addresses by protocol; the port of HTTP is that of the wire alone if there is no HTTP."""
    if settings.no_http:
        http = listening.pop("http")
        listening.setdefault("wire", http)
    return {name: address for name, address in listening.items() if address}


def port_of(address: str) -> int:
    """Returns the port of an address."""
    return int(address.rpartition(":")[2])


def http_server(
    application: "RequestHandler", protection: Protection, wire: WireService, share: float = HTTP_SHARE
) -> "HttpServer":
    """Makes the server of an HTTP port, which also serves the wire; `share` is its part of all descriptors."""
    from holdfast.server.http.server import HttpServer  # noqa: PLC0415 - as above

    return HttpServer(application, tls=protection.certificates, wire=wire.connection, share=share)


def metrics_server(application: "RequestHandler") -> "HttpServer":
    """Makes the server of the metrics port, which has neither TLS nor tokens, and few connections."""
    from holdfast.server.http.server import HttpServer  # noqa: PLC0415 - as above

    return HttpServer(
        application,
        connections_max=limits.METRICS_CONNECTIONS_MAX,
        share=METRICS_SHARE,
        content="metrics",
        advice="choose another port with --metrics-port",
    )
