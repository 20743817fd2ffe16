"""A gRPC server around a backend: services, health, reflection, graceful stop."""

from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from holdfast import limits
from holdfast.core.workers import beat_ms
from holdfast.errors import UnimplementedError
from holdfast.ledger.session_messages import LeaseTerms
from holdfast.proto import (
    holdfast_pb2,
    holdfast_pb2_grpc,
    taskqueue_internal_pb2,
    taskqueue_internal_pb2_grpc,
    taskqueue_public_pb2,
    taskqueue_public_pb2_grpc,
)
from holdfast.server.auth.certificates import Certificates
from holdfast.server.auth.permissions import Guard, OpenGuard
from holdfast.server.backend import Backend
from holdfast.server.grpc.client_services import CalledServices
from holdfast.server.grpc.connections import ConnectionTable, RecordingGuard
from holdfast.server.grpc.guard import GuardedServer, rights
from holdfast.server.grpc.listener import bind, port_of, server_options
from holdfast.server.grpc.message_counters import counters
from holdfast.server.grpc.method_table import table
from holdfast.server.grpc.public_service import PublicService
from holdfast.server.grpc.request_decoder import UnknownMethods
from holdfast.server.grpc.starting_methods import StartingMethods
from holdfast.server.grpc.status import Context, refuse
from holdfast.server.grpc.work_service import CoordinatorService, WorkService
from holdfast.server.startup import Startup
from holdfast.server.wire.connection import WireService

#: The services for clients, and those for workers.
_JOB_SERVICES = (
    taskqueue_public_pb2.DESCRIPTOR.services_by_name["TaskQueuePublicService"].full_name,
    holdfast_pb2.DESCRIPTOR.services_by_name["JobService"].full_name,
    holdfast_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name,
    holdfast_pb2.DESCRIPTOR.services_by_name["ScheduleService"].full_name,
)
_WORK_SERVICES = (
    taskqueue_internal_pb2.DESCRIPTOR.services_by_name["CoordinatorInternalService"].full_name,
    holdfast_pb2.DESCRIPTOR.services_by_name["WorkService"].full_name,
)
SERVICES = (*_JOB_SERVICES, *_WORK_SERVICES)
_METHOD_CHARS_MAX = 200


class GrpcServer:
    """A backend's services on one port.

    `add` the backend, then `start`; or with a `startup`, `listen` first, and `add` and `start` once there is a backend.
    """

    #: The name of its address in the ready line.
    name = "grpc"

    def __init__(
        self,
        *,
        has_reflection: bool,
        guard: Guard | None = None,
        certificates: Certificates | None = None,
        connections_max: int = limits.GRPC_CONNECTIONS_MAX,
        startup: Startup | None = None,
    ) -> None:
        """Without a `guard` every caller is admitted; without `certificates` there is no TLS."""
        self._certificates = certificates
        self._has_reflection = has_reflection
        self._connections = ConnectionTable(connections_max)
        self._guard = RecordingGuard(guard or OpenGuard(), self._connections)
        options = server_options(self._connections.connections_max)
        self._server = grpc.aio.server(interceptors=counters(), options=options)
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # missing in its stubs
        self._address = ""
        #: The port of the wire, which this port names to our own clients.
        self.wire_port = 0
        self._services: tuple[str, ...] = SERVICES
        self._called: CalledServices | None = None
        self._work: WorkService | None = None
        # gRPC asks the handlers in this order: health always answers, the services only once the start is over.
        health_pb2_grpc.add_HealthServicer_to_server(self._health, GuardedServer(self._server, self._guard, rights({})))
        ports = GuardedServer(self._server, self._guard, rights({}))
        holdfast_pb2_grpc.add_WireServiceServicer_to_server(_WirePort(self), ports)
        if startup is not None:
            self._server.add_generic_rpc_handlers((StartingMethods(startup),))

    def add(self, backend: Backend, terms: LeaseTerms, wire: WireService) -> None:
        """Registers the services of the backend; the wire has a port of its own."""
        del wire
        if backend.work is None:
            self._services = _JOB_SERVICES
        methods = table(backend)
        self._called = CalledServices(methods)
        ours = GuardedServer(self._server, self._guard, rights(methods))
        taskqueue_public_pb2_grpc.add_TaskQueuePublicServiceServicer_to_server(PublicService(backend.jobs), ours)
        for service, handlers in self._called.handlers().items():
            ours.add_registered_method_handlers(service, handlers)
        self._work = self._add_work(backend, terms, ours)
        if self._has_reflection:
            names = (*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME)
            described = reflection.aio.ReflectionServicer(names)  # type: ignore[attr-defined]  # missing in its stubs
            reflection_pb2_grpc.add_ServerReflectionServicer_to_server(described, ours)
        ours.add_last(UnknownMethods())

    def _add_work(self, backend: Backend, terms: LeaseTerms, ours: GuardedServer) -> WorkService | None:
        """Adds the services for workers, or a handler that refuses workers if the backend has none."""
        work = backend.work
        if work is None:
            ours.add_last(_NoWorkHandler(backend.elsewhere))
            return None
        calls = CoordinatorService(work, beat_ms(terms.heartbeat_ms, terms.lease_ms))
        taskqueue_internal_pb2_grpc.add_CoordinatorInternalServiceServicer_to_server(calls, ours)
        served = WorkService(work, _welcome(terms))
        holdfast_pb2_grpc.add_WorkServiceServicer_to_server(served, ours)
        return served

    async def listen(self, host: str, port: int) -> str:
        """Listens, reports NOT_SERVING, and returns the address; `UnavailableError` if the port is not available."""
        self._address = bind(self._server, host, port, self._certificates)
        await self._say(health_pb2.HealthCheckResponse.NOT_SERVING)
        await self._server.start()
        self._connections.start(port_of(self._address))
        return self._address

    async def start(self, host: str, port: int) -> str:
        """Reports SERVING and returns the address; listens first, unless it does already."""
        if not self._address:
            await self.listen(host, port)
        await self._say(health_pb2.HealthCheckResponse.SERVING)
        return self._address

    async def _say(self, status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        for service in ("", *self._services):
            await self._health.set(service, status)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return port_of(self._address)

    @property
    def connections_ended(self) -> int:
        """The number of connections that were shut down without an admitted call."""
        return self._connections.ended

    async def drain(self) -> None:
        """Reports NOT_SERVING and continues to serve, so that load balancers select other servers in time."""
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace_s: float) -> None:
        """Reports NOT_SERVING, notifies workers, finishes calls in progress, then closes."""
        await self.drain()
        if self._work is not None:
            self._work.stop()
        if self._called is not None:
            self._called.stop()
        await self._connections.stop()
        await self._server.stop(grace_s)


class _WirePort(holdfast_pb2_grpc.WireServiceServicer):
    """Names the port of the wire to every caller; it is checked there."""

    def __init__(self, server: GrpcServer) -> None:
        self._server = server

    async def GetPort(self, request: object, context: Context) -> holdfast_pb2.WirePort:
        """Returns the port; 0 if there is none."""
        return holdfast_pb2.WirePort(port=self._server.wire_port, grpc_port=self._server.port)


def _welcome(terms: LeaseTerms) -> holdfast_pb2.Welcome:
    return holdfast_pb2.Welcome(
        lease_ms=terms.lease_ms,
        heartbeat_ms=terms.heartbeat_ms,
        epoch=terms.epoch,
        cluster_id=terms.cluster_id,
        renews_leases=True,
    )


class _NoWorkHandler(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # not generic at run time
    """Refuses the calls of workers on a server without services for workers."""

    def __init__(self, where: str) -> None:
        self._where = where

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:  # noqa: ANN401 - grpc has no type
        """Returns a handler that refuses, for the services of workers only."""
        service, _, method = handler_call_details.method.removeprefix("/").partition("/")
        if service not in _WORK_SERVICES:
            return None

        async def handler(_: object, context: Context) -> None:
            await refuse(context, UnimplementedError(self._where, reason="WORK_ELSEWHERE"), method[:_METHOD_CHARS_MAX])

        return grpc.stream_stream_rpc_method_handler(handler)
