"""Errors of a gRPC stream that breaks."""

import asyncio
import socket
from typing import Any

import grpc
import pytest

from holdfast.errors import UnauthenticatedError, UnavailableError
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import holdfast_pb2_grpc as rpc
from tests.grpc_v1.grpc_transport import GrpcCarrier


async def test_write_that_breaks_is_an_outage_and_no_bug() -> None:
    """A stream that breaks during a write raises the error of a lost connection, so that the call is retried."""
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections and sends nothing
        carrier = GrpcCarrier(f"127.0.0.1:{silent.getsockname()[1]}")
        asking = asyncio.ensure_future(carrier.call("GetStats", pb.GetStatsRequest(), pb.Stats, None))
        await asyncio.sleep(0)  # lets the call start
        # gRPC sets this error when a write fails; from outside only a race in its core can cause that.
        carrier.line._call._cython_call.set_internal_error("the batch failed")  # type: ignore[attr-defined]
        with pytest.raises(UnavailableError) as failed:
            await asking
        assert failed.value.reason == "CONNECTION_LOST"
        await carrier.close()


class _Refusing(rpc.JobServiceServicer):
    """A server that ends every conversation before it reads a request."""

    async def Converse(self, _: object, context: grpc.aio.ServicerContext[pb.Call, pb.Reply]) -> None:  # noqa: N802 - the name of the method in the protocol
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "no token")


async def test_status_of_the_server_outlives_a_write_that_fails_after_it() -> None:
    """A call that the server refuses gets the server's error, although a write fails after the stream has ended."""
    server = grpc.aio.server()
    rpc.add_JobServiceServicer_to_server(_Refusing(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    carrier = GrpcCarrier(f"127.0.0.1:{port}")
    asking = asyncio.ensure_future(carrier.call("GetStats", pb.GetStatsRequest(), pb.Stats, None))
    await asyncio.sleep(0)  # lets the call start
    call: Any = carrier.line._call  # type: ignore[attr-defined]
    failures = iter(["the batch failed"])

    def fail_a_write(_: object) -> None:
        for words in failures:
            call._cython_call.set_internal_error(words)

    call.add_done_callback(fail_a_write)
    with pytest.raises(UnauthenticatedError, match="no token"):
        await asking
    assert await call.code() is grpc.StatusCode.INTERNAL
    await carrier.close()
    await server.stop(None)
