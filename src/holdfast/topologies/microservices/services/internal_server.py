"""One internal service on one port: authentication, health checks and graceful shutdown."""

from collections.abc import Mapping, Sequence

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from holdfast.server.grpc.connections import ConnectionTable
from holdfast.server.grpc.listener import bind, port_of, server_options
from holdfast.server.grpc.message_counters import counters
from holdfast.server.grpc.open_calls import OpenServer
from holdfast.server.grpc.request_decoder import TolerantServer, UnknownMethods
from holdfast.server.grpc.starting_methods import StartingMethods
from holdfast.server.startup import Startup
from holdfast.topologies.microservices.services.callers import CallerInterceptor

#: Health is reported as one of two statuses.
_STATUS = {True: health_pb2.HealthCheckResponse.SERVING, False: health_pb2.HealthCheckResponse.NOT_SERVING}


class ServiceServer:
    """Serves one servicer, registered with `handlers` in place of a server; then `start`, then `stop`.

    With a `startup`, it can `listen` before there is a servicer; then calls are refused until the start is over.
    """

    def __init__(self, name: str, hashes: Mapping[str, Sequence[str]], startup: Startup | None = None) -> None:
        """`name` is the full name of the service; without `hashes` callers are not authenticated."""
        self._name = name
        self._address = ""
        # `CallerInterceptor` comes first, so that refused calls are not counted.
        interceptors = (*((CallerInterceptor(hashes),) if hashes else ()), *counters())
        self._connections = ConnectionTable()
        options = server_options(self._connections.connections_max)
        self._server = grpc.aio.server(interceptors=interceptors, options=options)
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # missing in its stubs
        self.handlers = TolerantServer(self._server, self._connections)
        # gRPC asks the handlers in this order: health always answers, the service only once the start is over.
        health_pb2_grpc.add_HealthServicer_to_server(self._health, OpenServer(self._server))
        if startup is not None:
            self._server.add_generic_rpc_handlers((StartingMethods(startup),))

    async def listen(self, host: str, port: int) -> str:
        """Listens, reports NOT_SERVING, and returns the address; `UnavailableError` if the port cannot be bound."""
        self._address = bind(self._server, host, port)
        await self._report_serving(is_serving=False)
        await self._server.start()
        self._connections.start(port_of(self._address))
        return self._address

    async def start(self, host: str, port: int) -> str:
        """Reports SERVING and returns the address; listens first, unless it does already."""
        self._server.add_generic_rpc_handlers((UnknownMethods(),))
        if not self._address:
            await self.listen(host, port)
        await self._report_serving(is_serving=True)
        return self._address

    async def _report_serving(self, *, is_serving: bool) -> None:
        for service in ("", self._name):
            await self.report(service, is_well=is_serving)

    async def report(self, name: str, *, is_well: bool) -> None:
        """Reports the health of the service or of a part of it, by name: SERVING if it is well."""
        await self._health.set(name, _STATUS[is_well])

    async def stop(self, grace_s: float) -> None:
        """Reports NOT_SERVING, lets calls in flight finish, then closes."""
        await self._health.enter_graceful_shutdown()
        await self._connections.stop()
        await self._server.stop(grace_s)
