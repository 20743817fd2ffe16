"""The ports of a server during recovery: they answer probes, and refuse all other requests as retryable.

`Face` takes over these listening ports once there is a backend.
"""

from typing import TYPE_CHECKING

from holdfast import limits
from holdfast.server.descriptors import allow_many
from holdfast.server.grpc.server import GrpcServer
from holdfast.server.protection import Protection
from holdfast.server.startup import Startup
from holdfast.settings import Settings

if TYPE_CHECKING:
    from holdfast.server.http.request_handler import Handling
    from holdfast.server.http.server import HttpServer


class EarlyPorts:
    """The listening ports during a start. `open`, then `close` if the start fails."""

    def __init__(self, settings: Settings, protection: Protection, startup: Startup) -> None:
        self._settings = settings
        self.startup = startup
        self.grpc = GrpcServer(
            has_reflection=settings.reflection,
            guard=protection.guard,
            certificates=protection.certificates,
            connections_max=settings.grpc_connections,
            startup=startup,
        )
        self.http = None if settings.no_http else http_server(_application(settings, startup), protection)
        self.metrics = metrics_server(_application(settings, startup)) if settings.metrics_port else None
        #: The addresses by protocol.
        self.addresses: dict[str, str] = {}

    async def open(self) -> None:
        """Listens on every port; `UnavailableError` if one is not available, with none left open."""
        allow_many()
        settings, http, metrics = self._settings, "", ""
        try:
            if self.metrics is not None:
                metrics = await self.metrics.start(settings.host, settings.metrics_port)
            if self.http is not None:
                http = await self.http.start(settings.host, settings.http_port)
            grpc = await self.grpc.listen(settings.host, settings.port)
        except BaseException:
            await self.close()
            raise
        named = {"grpc": grpc, "http": http, "metrics": metrics}
        self.addresses = {name: address for name, address in named.items() if address}

    async def close(self) -> None:
        """Closes all ports at once."""
        await self.grpc.stop(0)
        if self.http is not None:
            await self.http.stop(0)
        if self.metrics is not None:
            await self.metrics.stop(0)


def _application(settings: Settings, startup: Startup) -> "Handling":
    # A server with gRPC alone does not import HTTP.
    from holdfast.server.http.browser_security import BrowserShield  # noqa: PLC0415
    from holdfast.server.http.startup_application import StartingApplication  # noqa: PLC0415

    return StartingApplication(startup, BrowserShield(settings.host, settings.allowed_hosts.split(",")))


def http_server(application: "Handling", protection: Protection) -> "HttpServer":
    """Makes the server of the HTTP port."""
    from holdfast.server.http.server import HttpServer  # noqa: PLC0415 - as above

    return HttpServer(application, tls=protection.certificates)


def metrics_server(application: "Handling") -> "HttpServer":
    """Makes the server of the metrics port, which has neither TLS nor tokens, and few connections."""
    from holdfast.server.http.server import HttpServer  # noqa: PLC0415 - as above

    return HttpServer(
        application,
        connections_max=limits.METRICS_CONNECTIONS_MAX,
        content="metrics",
        advice="choose another port with --metrics-port",
    )
