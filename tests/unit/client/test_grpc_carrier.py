"""A stream that breaks: what whoever waits for an answer is told."""

import asyncio
import socket

import pytest

from holdfast.client.grpc_transport import GrpcCarrier
from holdfast.errors import UnavailableError
from holdfast.proto import holdfast_pb2 as pb


async def test_write_that_breaks_is_an_outage_and_no_bug() -> None:
    """A stream that breaks in the instant of a write fails as any lost connection does, so that it is repeated."""
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and never says a word
        carrier = GrpcCarrier(f"127.0.0.1:{silent.getsockname()[1]}")
        asking = asyncio.ensure_future(carrier.call("GetStats", pb.GetStatsRequest(), pb.Stats, None))
        await asyncio.sleep(0)  # it begins
        # What gRPC does to its call when it cannot write; only a race in its core can bring that about from outside.
        carrier.line._call._cython_call.set_internal_error("the batch failed")  # type: ignore[attr-defined]
        with pytest.raises(UnavailableError) as failed:
            await asking
        assert failed.value.reason == "CONNECTION_LOST"
        await carrier.close()
