"""The port for calls: gRPC, and the wire's port by redirect; without gRPC installed, the wire alone.

A base install has no gRPC. Its servers speak the wire on this port too, so that the address of a server means the same
in every installation.
"""

from importlib.util import find_spec
from typing import Protocol

from holdfast.errors import FailedPreconditionError, UnavailableError
from holdfast.ledger.session_messages import LeaseTerms
from holdfast.observe.logs import get_logger
from holdfast.server.backend import Backend
from holdfast.server.descriptors import CALLS_SHARE
from holdfast.server.http.browser_security import BrowserShield
from holdfast.server.http.request_handler import RequestHandler
from holdfast.server.http.server import HttpServer
from holdfast.server.protection import Protection
from holdfast.server.startup import Startup
from holdfast.server.wire.connection import RefusingService, WireConnection, WireService
from holdfast.settings import Settings


class RpcPort(Protocol):
    """The listening port for calls."""

    #: The name of its address in the ready line.
    name: str
    #: The port of the wire, which the gRPC port names to our own clients.
    wire_port: int

    def add(self, backend: Backend, terms: LeaseTerms, wire: WireService) -> None:
        """Serves the backend from the next `start` on; `wire` is the service of our own clients."""
        ...

    async def listen(self, host: str, port: int) -> str:
        """Listens and refuses every call as retryable; returns the address. `UnavailableError` if it cannot."""
        ...

    async def start(self, host: str, port: int) -> str:
        """Serves the backend and returns the address; listens first, unless it does already."""
        ...

    @property
    def connections_ended(self) -> int:
        """The number of connections that were closed because they did nothing."""
        ...

    async def drain(self) -> None:
        """Reports that the server will stop soon, and continues to serve."""
        ...

    async def stop(self, grace_s: float) -> None:
        """Accepts no more calls, answers those in progress, and closes."""
        ...


def has_grpc() -> bool:
    """Whether gRPC is installed."""
    return find_spec("grpc") is not None and find_spec("grpc_health") is not None


def need_grpc(what: str) -> None:
    """Raises `FailedPreconditionError` without gRPC, with the command that installs it."""
    if not has_grpc():
        raise FailedPreconditionError(f"{what} needs gRPC: pip install 'holdfast[server]'", reason="PACKAGES_MISSING")


def rpc_port(settings: Settings, protection: Protection, startup: Startup | None = None) -> RpcPort:
    """Returns the port of a server; with a `startup`, its calls are refused until the start is over."""
    if not has_grpc():
        message = "this server serves no gRPC, which only other clients need; to add it: pip install 'holdfast[server]'"
        get_logger().info("grpc_missing", message=message)
        return WirePort(settings, protection, startup)
    from holdfast.server.grpc.server import GrpcServer  # noqa: PLC0415 - a base install has no gRPC

    return GrpcServer(
        has_reflection=settings.reflection,
        guard=protection.guard,
        certificates=protection.certificates,
        connections_max=settings.grpc_connections,
        startup=startup,
    )


def _not_ready() -> UnavailableError:
    return UnavailableError("the server is starting; try again in a moment", reason="SERVER_STARTING")


class WirePort:
    """The port of a server without gRPC."""

    name = "wire"

    def __init__(self, settings: Settings, protection: Protection, startup: Startup | None) -> None:
        shield = BrowserShield(settings.host, settings.allowed_hosts.split(","))
        hint = f"this port is for Holdfast's own clients; HTTP is on port {settings.http_port}"
        self._application = RequestHandler([], hint, protection.guard, shield)
        self._wire: WireService = RefusingService(startup.error if startup is not None else _not_ready)
        self._server = HttpServer(
            self._application,
            tls=protection.certificates,
            wire=self._connection,
            share=CALLS_SHARE,
            content="the wire",
            advice="choose another port with --port",
        )
        self._address = ""
        self.wire_port = 0
        self.connections_ended = 0

    def _connection(self, peer: str) -> WireConnection:
        return self._wire.connection(peer)

    def add(self, backend: Backend, terms: LeaseTerms, wire: WireService) -> None:
        """Serves the wire, with the connections of both ports in one service."""
        del backend, terms
        self._wire = wire

    async def listen(self, host: str, port: int) -> str:
        """Listens."""
        self._address = await self._server.start(host, port)
        return self._address

    async def start(self, host: str, port: int) -> str:
        """Listens, unless it does already."""
        return self._address or await self.listen(host, port)

    async def drain(self) -> None:
        """Does nothing: only gRPC has a health service."""

    async def stop(self, grace_s: float) -> None:
        """Closes the connections."""
        await self._server.stop(grace_s)
        await self._wire.stop(grace_s)
