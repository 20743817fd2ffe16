"""A gRPC server around a backend: services, health, reflection, orderly end."""

from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from holdfast.core.workers import beat_ms
from holdfast.errors import UnimplementedError
from holdfast.gateway.backend import Backend
from holdfast.gateway.calls import table
from holdfast.gateway.certificates import Certificates
from holdfast.gateway.grpc.calls import CalledServices
from holdfast.gateway.grpc.counting import counters
from holdfast.gateway.grpc.decoding import UnknownMethods
from holdfast.gateway.grpc.guard import GuardedServer, rights
from holdfast.gateway.grpc.listening import SERVER_OPTIONS, bind
from holdfast.gateway.grpc.public import PublicService
from holdfast.gateway.grpc.status import Context, refuse
from holdfast.gateway.grpc.work import CoordinatorService, WorkService
from holdfast.gateway.guarding import Guard, OpenGuard
from holdfast.proto import (
    holdfast_pb2,
    holdfast_pb2_grpc,
    taskqueue_internal_pb2,
    taskqueue_internal_pb2_grpc,
    taskqueue_public_pb2,
    taskqueue_public_pb2_grpc,
)

#: For clients, and for workers.
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


class GrpcServer:
    """A backend's services on one port."""

    def __init__(
        self,
        backend: Backend,
        welcome: holdfast_pb2.Welcome,
        *,
        has_reflection: bool,
        guard: Guard | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        """Without a `guard` whoever reaches it may call it, without `certificates` it speaks in the clear."""
        self._certificates = certificates
        self._server = grpc.aio.server(interceptors=counters(), options=SERVER_OPTIONS)
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # missing in its stubs
        self._services = _JOB_SERVICES if backend.work is None else SERVICES
        methods = table(backend)
        self._called = CalledServices(methods)
        ours = GuardedServer(self._server, guard or OpenGuard(), rights(methods))
        taskqueue_public_pb2_grpc.add_TaskQueuePublicServiceServicer_to_server(PublicService(backend.jobs), ours)
        for service, handlers in self._called.handlers().items():
            ours.add_registered_method_handlers(service, handlers)
        self._work = self._add_work(backend, welcome, ours)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, ours)
        if has_reflection:
            names = (*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME)
            described = reflection.aio.ReflectionServicer(names)  # type: ignore[attr-defined]  # missing in its stubs
            reflection_pb2_grpc.add_ServerReflectionServicer_to_server(described, ours)
        ours.add_last(UnknownMethods())

    def _add_work(self, backend: Backend, welcome: holdfast_pb2.Welcome, ours: GuardedServer) -> WorkService | None:
        """What workers connect to, or who tells them that it is not here."""
        work = backend.work
        if work is None:
            ours.add_last(_WorkElsewhere(backend.elsewhere))
            return None
        calls = CoordinatorService(work, beat_ms(welcome.heartbeat_ms, welcome.lease_ms))
        taskqueue_internal_pb2_grpc.add_CoordinatorInternalServiceServicer_to_server(calls, ours)
        served = WorkService(work, welcome)
        holdfast_pb2_grpc.add_WorkServiceServicer_to_server(served, ours)
        return served

    async def start(self, host: str, port: int) -> str:
        """Listens, says SERVING, and returns the address; `UnavailableError` if the port cannot be had."""
        address = bind(self._server, host, port, self._certificates)
        await self._server.start()
        for service in ("", *self._services):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        return address

    async def drain(self) -> None:
        """Says NOT_SERVING and goes on answering, so that balancers turn to others in good time."""
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace_s: float) -> None:
        """Says NOT_SERVING, tells workers, lets calls under way finish, then closes."""
        await self.drain()
        if self._work is not None:
            self._work.stop()
        self._called.stop()
        await self._server.stop(grace_s)


class _WorkElsewhere(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # not generic at run time
    """Answers the calls of workers where there is nothing for them."""

    def __init__(self, where: str) -> None:
        self._where = where

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:  # noqa: ANN401 - grpc has no type
        """A handler that refuses, for the services of workers alone."""
        service, _, method = handler_call_details.method.removeprefix("/").partition("/")
        if service not in _WORK_SERVICES:
            return None

        async def handler(_: object, context: Context) -> None:
            await refuse(context, UnimplementedError(self._where, reason="WORK_ELSEWHERE"), method[:200])

        return grpc.stream_stream_rpc_method_handler(handler)
