"""The deadlines of the calls between services, as they are sent."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest

from holdfast.errors import HoldfastError
from holdfast.ports import Introduction
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.topologies.microservices.backend.coordinator_client import CoordinatorCalls
from holdfast.topologies.microservices.backend.owner_clients import Owners
from tests.e2e.wait_until import DEADLINE_S

WORKER = Introduction("w", frozenset({"echo"}))


class Clockwatcher(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[type-arg]  # not generic at run time
    """Records the deadline of each call and extends it, so that a slow machine does not fail the call."""

    def __init__(self) -> None:
        self.deadlines_s: dict[str, float | None] = {}

    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:  # noqa: ANN401
        """Records the deadline and sends the call."""
        self.deadlines_s[details.method.decode().rpartition("/")[2]] = details.timeout
        return await continuation(details._replace(timeout=DEADLINE_S), request)


class Refusing(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # not generic at run time
    """A server that refuses every call."""

    def service(self, _: grpc.HandlerCallDetails) -> Any:  # noqa: ANN401 - grpc has no type
        async def handler(_: object, context: Any) -> None:  # noqa: ANN401 - grpc has no type
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "seen")

        return grpc.unary_unary_rpc_method_handler(handler)


@pytest.fixture
async def watched() -> AsyncIterator[tuple[Clockwatcher, grpc.aio.Channel]]:
    """A channel to a real server, and the deadlines of its calls."""
    watcher, server = Clockwatcher(), grpc.aio.server()
    server.add_generic_rpc_handlers((Refusing(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    interceptors: Any = [watcher]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", interceptors=interceptors) as channel:
        yield watcher, channel
    await server.stop(None)


async def refused(call: Awaitable[object]) -> None:
    with pytest.raises(HoldfastError, match="seen"):
        await call


Use = Callable[[grpc.aio.Channel], Awaitable[object]]


@pytest.mark.parametrize(
    "use",
    [
        lambda channel: Owners(job=channel, queue=channel, result=channel).job.create(pb.CreateJobRequest()),
        lambda channel: Owners(job=channel, queue=channel, result=channel).result.envelope(pb.GetResultRequest()),
        lambda channel: Owners(job=channel, queue=channel, result=channel).job.move(pb.TransitionJobStatusRequest()),
        lambda channel: Owners(job=channel, queue=channel, result=channel).queue.dequeue(pb.DequeueJobRequest()),
        lambda channel: Owners(job=channel, queue=channel, result=channel).result.store(pb.StoreResultRequest()),
    ],
    ids=["gateway-job", "gateway-result", "coordinator-job", "coordinator-queue", "coordinator-result"],
)
async def test_calls_between_services_wait_one_second(watched: tuple[Clockwatcher, grpc.aio.Channel], use: Use) -> None:
    """The gateway and the coordinator send every call with a deadline of 1000 ms."""
    watcher, channel = watched
    await refused(use(channel))
    (deadline_s,) = watcher.deadlines_s.values()
    assert deadline_s == 1.0


async def test_services_wait_as_long_as_they_are_told(watched: tuple[Clockwatcher, grpc.aio.Channel]) -> None:
    """`INTERNAL_TIMEOUT_MS` sets the deadline of the calls between services."""
    watcher, channel = watched
    owners = Owners(job=channel, queue=channel, result=channel, timeout_ms=20_000)
    await refused(owners.queue.dequeue(pb.DequeueJobRequest()))
    (deadline_s,) = watcher.deadlines_s.values()
    assert deadline_s == 20.0


async def test_fetch_waits_a_second_and_a_half(watched: tuple[Clockwatcher, grpc.aio.Channel]) -> None:
    """A worker sends FetchWork with a deadline of 1500 ms."""
    watcher, channel = watched
    await refused(CoordinatorCalls(channel, WORKER).fetch())
    assert watcher.deadlines_s["FetchWork"] == 1.5


async def test_heartbeat_waits_a_second(watched: tuple[Clockwatcher, grpc.aio.Channel]) -> None:
    """A worker sends WorkerHeartbeat with a deadline of 1000 ms."""
    watcher, channel = watched
    await refused(CoordinatorCalls(channel, WORKER).heartbeat({}))
    assert watcher.deadlines_s["WorkerHeartbeat"] == 1.0
