"""The ports of a server that still recovers: they answer probes, and tell everybody else to try again.

`Face` takes them over, listening as they are, once there is a backend.
"""

from typing import TYPE_CHECKING

from holdfast.observe.metrics_endpoint import Endpoint
from holdfast.process.descriptors import allow_many
from holdfast.server.grpc.server import GrpcServer
from holdfast.server.http.host_names import HostNames
from holdfast.server.protection import Protection
from holdfast.server.startup import Startup
from holdfast.settings import Settings

if TYPE_CHECKING:
    from holdfast.server.http.server import HttpServer


class EarlyPorts:
    """What listens during a start. `open`, then `close` if the start fails."""

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
        self.http = None if settings.no_http else _http_server(settings, protection, startup)
        names = HostNames(settings.host, settings.allowed_hosts.split(","))
        starting = Endpoint(None, names.check, starting=lambda: startup.document)
        self.endpoint = starting if settings.metrics_port else None
        #: By protocol.
        self.addresses: dict[str, str] = {}

    async def open(self) -> None:
        """Listens on every port; `UnavailableError` if one cannot be had, with nothing left listening."""
        allow_many()
        settings, http, metrics = self._settings, "", ""
        try:
            if self.endpoint is not None:
                metrics = await self.endpoint.start(settings.host, settings.metrics_port)
            if self.http is not None:
                http = await self.http.start(settings.host, settings.http_port)
            grpc = await self.grpc.listen(settings.host, settings.port)
        except BaseException:
            await self.close()
            raise
        named = {"grpc": grpc, "http": http, "metrics": metrics}
        self.addresses = {name: address for name, address in named.items() if address}

    async def close(self) -> None:
        """Closes them at once."""
        await self.grpc.stop(0)
        if self.http is not None:
            await self.http.stop(0)
        if self.endpoint is not None:
            await self.endpoint.stop()


def _http_server(settings: Settings, protection: Protection, startup: Startup) -> "HttpServer":
    # Who serves gRPC alone pays nothing for it.
    from holdfast.server.http.browser_security import BrowserShield  # noqa: PLC0415
    from holdfast.server.http.server import HttpServer  # noqa: PLC0415
    from holdfast.server.http.startup_application import StartingApplication  # noqa: PLC0415

    shield = BrowserShield(settings.host, settings.allowed_hosts.split(","))
    return HttpServer(StartingApplication(startup, shield), tls=protection.certificates)
