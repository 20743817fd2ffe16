"""Waiting until a topology has nothing left to do, so that one workload does not leave its work to the next."""

import asyncio
import time

import grpc

from holdfast.lab.compare.topologies import Started
from holdfast.proto import taskqueue_public_pb2 as pb
from holdfast.proto import taskqueue_public_pb2_grpc as rpc

QUIET_S = 30.0
_LOOK_S = 0.05
_CALL_S = 5.0


async def quieten(started: Started, look_s: float = _LOOK_S) -> bool:
    """Whether every node said in time that none of its jobs is queued or running."""
    deadline = time.monotonic() + QUIET_S
    for target in started.targets:
        async with grpc.aio.insecure_channel(target) as channel:
            while not await _is_quiet(channel):
                if time.monotonic() > deadline:
                    return False
                await asyncio.sleep(look_s)
    return True


async def _is_quiet(channel: grpc.aio.Channel) -> bool:
    request = pb.ListJobsRequest(status_filter=[pb.QUEUED, pb.RUNNING], page=pb.PageRequest(page_size=1))
    try:
        reply = await rpc.TaskQueuePublicServiceStub(channel).ListJobs(request, timeout=_CALL_S)
    except grpc.aio.AioRpcError:
        return False
    return not reply.jobs
