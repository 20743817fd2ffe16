"""The deadlines between services, as whoever is called sees them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest

from holdfast.backends.microservices.coordinator_calls import CoordinatorCalls
from holdfast.backends.microservices.owners import Owners
from holdfast.backends.ports import Introduction
from holdfast.client.channel import open_channel
from holdfast.errors import HoldfastError
from holdfast.proto import taskqueue_internal_pb2 as pb

WORKER = Introduction("w", frozenset({"echo"}))


class Clockwatcher(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # not generic at run time
    """Notes how much time each call brings along, and refuses it for good."""

    def __init__(self) -> None:
        self.left_s: dict[str, float] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:  # noqa: ANN401 - grpc has no type
        method = handler_call_details.method.rpartition("/")[2]

        async def handler(_: object, context: Any) -> None:  # noqa: ANN401 - grpc has no type
            self.left_s[method] = context.time_remaining()
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "seen")

        return grpc.unary_unary_rpc_method_handler(handler)


@pytest.fixture
async def watched() -> AsyncIterator[tuple[Clockwatcher, grpc.aio.Channel]]:
    """A server that notes the time, and a channel to it."""
    watcher, server = Clockwatcher(), grpc.aio.server()
    server.add_generic_rpc_handlers((watcher,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with open_channel(f"127.0.0.1:{port}") as channel:
        await channel.channel_ready()
        yield watcher, channel
    await server.stop(None)


async def refused(call: Awaitable[object]) -> None:
    with pytest.raises(HoldfastError, match="seen"):
        await call


def is_about(left_s: float, deadline_s: float) -> bool:
    """What is left of a deadline when it arrives: not more than it was, but for rounding, and more than half of it."""
    return deadline_s / 2 < left_s <= deadline_s + 0.1


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
    """Every call of gateway and coordinator brings a deadline of 1000 ms."""
    watcher, channel = watched
    await refused(use(channel))
    (left_s,) = watcher.left_s.values()
    assert is_about(left_s, 1.0)


async def test_services_wait_as_long_as_they_are_told(watched: tuple[Clockwatcher, grpc.aio.Channel]) -> None:
    """Where disks are slow, `INTERNAL_TIMEOUT_MS` makes the deadline a longer one."""
    watcher, channel = watched
    owners = Owners(job=channel, queue=channel, result=channel, timeout_ms=20_000)
    await refused(owners.queue.dequeue(pb.DequeueJobRequest()))
    (left_s,) = watcher.left_s.values()
    assert is_about(left_s, 20.0)


async def test_fetch_waits_a_second_and_a_half(watched: tuple[Clockwatcher, grpc.aio.Channel]) -> None:
    """A worker's FetchWork brings a deadline of 1500 ms."""
    watcher, channel = watched
    await refused(CoordinatorCalls(channel, WORKER).fetch())
    assert is_about(watcher.left_s["FetchWork"], 1.5)


async def test_heartbeat_waits_a_second(watched: tuple[Clockwatcher, grpc.aio.Channel]) -> None:
    """A worker's WorkerHeartbeat brings a deadline of 1000 ms."""
    watcher, channel = watched
    await refused(CoordinatorCalls(channel, WORKER).heartbeat({}))
    assert is_about(watcher.left_s["WorkerHeartbeat"], 1.0)
