"""Waiting until a topology is idle, so that one workload does not affect the next."""

import asyncio
import time

import grpc

from holdfast.proto import taskqueue_public_pb2 as pb
from holdfast.proto import taskqueue_public_pb2_grpc as rpc
from holdfast_lab.compare.topologies import RunningTopology

QUIET_S = 30.0
_LOOK_S = 0.05
_CALL_S = 5.0


async def quieten(started: RunningTopology, look_s: float = _LOOK_S) -> bool:
    """Wait until no node has queued or running jobs; False if that takes too long."""
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
