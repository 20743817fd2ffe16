"""Faulty connections to a real server: calls that succeed without a response."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from holdfast.proto import taskqueue_public_pb2 as public
from holdfast.proto import taskqueue_public_pb2_grpc as public_rpc
from tests.integration.conftest import Start
from tests.integration.torture_faults.proxy_peers import DEADLINE_S, proxied


@asynccontextmanager
async def stub_of(address: str) -> AsyncIterator[Any]:
    """A stub for an address, on a connection of its own."""
    async with grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield public_rpc.TaskQueuePublicServiceStub(channel)


async def submit(stub: Any, key: str) -> str:  # noqa: ANN401 - the stub has no types
    request = public.SubmitJobRequest(spec=public.JobSpec(job_type="sim"), client_request_id=key)
    answer: public.SubmitJobResponse = await stub.SubmitJob(request, timeout=DEADLINE_S)
    return answer.job_id


async def count(stub: Any) -> int:  # noqa: ANN401 - the stub has no types
    return len((await stub.ListJobs(public.ListJobsRequest(), timeout=DEADLINE_S)).jobs)


@pytest.mark.parametrize("is_connected", [True, False], ids=["on a connection", "on a new one"])
async def test_submit_whose_answer_is_cut_was_accepted(start: Start, *, is_connected: bool) -> None:
    """A submit whose response is cut was accepted, and a repeated one with its key returns that job."""
    server = await start()
    port = int(server.address.rpartition(":")[2])
    async with proxied(port) as proxy, stub_of(proxy.address) as through, stub_of(server.address) as direct:
        if is_connected:
            assert await count(through) == 0
        proxy.cut_after_send(is_on=True)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await submit(through, "key")
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert await count(direct) == 1
        proxy.cut_after_send(is_on=False)
        assert await submit(through, "key") == await submit(direct, "key")


async def test_duplicated_submit_arrives_twice(start: Start) -> None:
    """A duplicated submit creates two jobs without a key and one job with a key."""
    server = await start()
    port = int(server.address.rpartition(":")[2])
    async with proxied(port) as proxy, stub_of(proxy.address) as through, stub_of(server.address) as direct:
        proxy.duplicate(is_on=True)
        await submit(through, "")
        async with asyncio.timeout(DEADLINE_S):
            while await count(direct) < 2:
                pass
        ids = {await submit(through, "key") for _ in range(3)}
        assert (len(ids), await count(direct)) == (1, 3)
