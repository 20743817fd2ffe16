"""The client's own deadlines, as a server sees them."""

from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import pytest

from holdfast.client.jobs import JobClient, SubmitOptions
from holdfast.client.retrying import Retrying
from holdfast.errors import HoldfastError
from holdfast.gateway.grpc.status import Context


class Clockwatcher(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # not generic when it runs
    """Notes how much time each call brings along, and refuses it for good."""

    def __init__(self) -> None:
        self.remaining_s: dict[str, float] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        async def refuse(_request: bytes, context: Context) -> None:
            self.remaining_s[handler_call_details.method.rsplit("/", 1)[1]] = context.time_remaining() or 0
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "seen")

        return grpc.unary_unary_rpc_method_handler(refuse)


@pytest.fixture
async def watched() -> AsyncIterator[tuple[JobClient, Clockwatcher]]:
    """A client and the server that watches it."""
    watcher = Clockwatcher()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((watcher,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with JobClient(f"127.0.0.1:{port}", Retrying()) as client:
            yield client, watcher
    finally:
        await server.stop(None)


Call = Callable[[JobClient], Awaitable[object]]


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("SubmitJobs", lambda client: client.submit("echo", b"", SubmitOptions())),
        ("CancelJob", lambda client: client.cancel("id", "")),
    ],
)
async def test_changing_calls_wait_three_seconds(
    watched: tuple[JobClient, Clockwatcher], method: str, call: Call
) -> None:
    """Submitting and cancelling bring a deadline of 3000 ms."""
    client, watcher = watched
    with pytest.raises(HoldfastError, match="seen"):
        await call(client)
    assert 1 < watcher.remaining_s[method] < 3.1  # the two processes' clocks round differently


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("GetJobStatus", lambda client: client.status("id")),
        ("GetJobResult", lambda client: client.result("id")),
        ("ListJobs", lambda client: client.page([], "", 50, newest_first=True)),
    ],
)
async def test_reading_calls_wait_one_second(watched: tuple[JobClient, Clockwatcher], method: str, call: Call) -> None:
    """Status, result and listing bring a deadline of 1000 ms."""
    client, watcher = watched
    with pytest.raises(HoldfastError, match="seen"):
        await call(client)
    assert 0 < watcher.remaining_s[method] < 1.1
