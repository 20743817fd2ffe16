"""One internal service on one port: authentication, health checks and graceful shutdown."""

from collections.abc import Mapping, Sequence

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from holdfast.server.grpc.connections import ConnectionTable
from holdfast.server.grpc.listener import bind, port_of, server_options
from holdfast.server.grpc.message_counters import counters
from holdfast.server.grpc.open_calls import OpenServer
from holdfast.server.grpc.request_decoder import TolerantServer, UnknownMethods
from holdfast.topologies.microservices.services.callers import CallerInterceptor


class ServiceServer:
    """Serves one servicer, registered with `handlers` in place of a server; then `start`, then `stop`."""

    def __init__(self, name: str, hashes: Mapping[str, Sequence[str]]) -> None:
        """`name` is the full name of the service; without `hashes` callers are not authenticated."""
        self._name = name
        # `CallerInterceptor` comes first, so that refused calls are not counted.
        interceptors = (*((CallerInterceptor(hashes),) if hashes else ()), *counters())
        self._connections = ConnectionTable()
        options = server_options(self._connections.connections_max)
        self._server = grpc.aio.server(interceptors=interceptors, options=options)
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # missing in its stubs
        self.handlers = TolerantServer(self._server, self._connections)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, OpenServer(self._server))

    async def start(self, host: str, port: int) -> str:
        """Listens, reports SERVING, and returns the address; `UnavailableError` if the port cannot be bound."""
        self._server.add_generic_rpc_handlers((UnknownMethods(),))
        address = bind(self._server, host, port)
        await self._server.start()
        self._connections.start(port_of(address))
        for service in ("", self._name):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        return address

    async def stop(self, grace_s: float) -> None:
        """Reports NOT_SERVING, lets calls in flight finish, then closes."""
        await self._health.enter_graceful_shutdown()
        await self._connections.stop()
        await self._server.stop(grace_s)
