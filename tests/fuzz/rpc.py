"""The services of a gateway without a socket: calls go to gRPC's handlers, with the bytes of the requests."""

import asyncio
from typing import Any, NamedTuple, cast

import grpc
from google.protobuf.message import Message
from google.rpc.status_pb2 import Status

from holdfast.core.workers import beat_ms
from holdfast.errors import MAPPED, Code
from holdfast.proto import (
    holdfast_pb2,
    holdfast_pb2_grpc,
    taskqueue_internal_pb2,
    taskqueue_internal_pb2_grpc,
    taskqueue_public_pb2,
    taskqueue_public_pb2_grpc,
)
from holdfast.server.auth.permissions import OpenGuard
from holdfast.server.grpc.client_services import CalledServices
from holdfast.server.grpc.guard import GuardedServer, rights
from holdfast.server.grpc.method_table import table
from holdfast.server.grpc.public_service import PublicService
from holdfast.server.grpc.request_decoder import UnknownMethods
from holdfast.server.grpc.server import _welcome
from holdfast.server.grpc.status import DETAILS_KEY
from holdfast.server.grpc.work_service import CoordinatorService, WorkService
from tests.fuzz.world import PATIENCE_S, World, settle

#: The codes that a client may get; INTERNAL would be a bug.
_CODES = {mapped.grpc_status for code, mapped in MAPPED.items() if code is not Code.INTERNAL}
_MODULES = (holdfast_pb2, taskqueue_internal_pb2, taskqueue_public_pb2)
_SERVED = (
    *("holdfast.v1.JobService", "holdfast.v1.AdminService", "holdfast.v1.ScheduleService", "holdfast.v1.WorkService"),
    *("taskqueue.v1.TaskQueuePublicService", "taskqueue.internal.v1.CoordinatorInternalService"),
)
#: The value that a handler reads at the end of a stream; the type stubs of grpc lack it.
_EOF: object = getattr(grpc.aio, "EOF")  # noqa: B009
#: Methods that may not end by themselves.
_WAITING = {"AwaitJob", "WatchJob", "Feed", "Work", "Converse"}


class Called(NamedTuple):
    """One method: its path, and the type of its requests."""

    path: str
    request: type[Message]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def methods() -> list[Called]:
    """Every method of every service that a gateway has."""
    return [
        Called(f"/{service.full_name}/{method.name}", method.input_type._concrete_class)
        for module in _MODULES
        for service in module.DESCRIPTOR.services_by_name.values()
        if service.full_name in _SERVED
        for method in service.methods
    ]


class Refused(Exception):  # noqa: N818 - as the product calls it
    """The status that a call ended with."""

    def __init__(self, code: grpc.StatusCode, message: str, details: bytes) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        assert code.value[0] in _CODES, f"{code.name}: {message}"
        status = Status.FromString(details)
        assert (status.code, status.message) == (code.value[0], message)


class Context:
    """The context of a call, as handlers use it; records the written messages."""

    def __init__(self, requests: list[bytes], decode: Any) -> None:  # noqa: ANN401 - grpc has no type
        self._requests = requests
        self._decode = decode
        self.written: list[Message] = []

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),)

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def abort(self, code: grpc.StatusCode, message: str, trailing: tuple[tuple[str, bytes], ...]) -> None:
        raise Refused(code, message, dict(trailing)[DETAILS_KEY])

    async def write(self, message: Message) -> None:
        message.SerializeToString()
        self.written.append(message)

    async def read(self) -> object:
        await settle()
        return self._decode(self._requests.pop(0)) if self._requests else _EOF


class Details(NamedTuple):
    """The name of the called method, as gRPC passes it."""

    method: str
    invocation_metadata: tuple[tuple[str, str], ...] = ()


class Gateway:
    """The handlers of all services over one world, in the order in which a server tries them."""

    def __init__(self, world: World) -> None:
        self._handlers: list[Any] = []
        called = table(world.backend)
        ours = GuardedServer(cast("grpc.aio.Server", self), OpenGuard(), rights(called))
        public = PublicService(world.backend.jobs)
        taskqueue_public_pb2_grpc.add_TaskQueuePublicServiceServicer_to_server(public, ours)
        for service, handlers in CalledServices(called).handlers().items():
            ours.add_registered_method_handlers(service, handlers)
        work = world.backend.work
        assert work is not None
        beat = beat_ms(world.terms.heartbeat_ms, world.terms.lease_ms)
        coordinator = CoordinatorService(work, beat)
        taskqueue_internal_pb2_grpc.add_CoordinatorInternalServiceServicer_to_server(coordinator, ours)
        holdfast_pb2_grpc.add_WorkServiceServicer_to_server(WorkService(work, _welcome(world.terms)), ours)
        ours.add_last(UnknownMethods())

    def add_generic_rpc_handlers(self, handlers: tuple[Any, ...]) -> None:
        """Adds handlers, as `grpc.aio.Server` does."""
        self._handlers += handlers

    async def call(self, path: str, requests: list[bytes]) -> list[Message]:
        """Returns all responses, or raises `Refused`; cancels a call of a waiting method that does not end."""
        handlers = (handler.service(Details(path)) for handler in self._handlers)
        handler = next(found for found in handlers if found is not None)
        context = Context(requests, handler.request_deserializer)
        if handler.unary_unary is not None:
            answering = handler.unary_unary(requests[0], context)
        elif handler.unary_stream is not None:
            answering = handler.unary_stream(requests[0], context)
        else:
            answering = handler.stream_stream(None, context)
        task = asyncio.ensure_future(answering)
        if path.rpartition("/")[2] in _WAITING:
            for _ in range(3 + len(requests)):
                await settle()
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
                return context.written
        answer = await asyncio.wait_for(task, PATIENCE_S)
        return [*context.written, *([answer] if isinstance(answer, Message) else [])]
