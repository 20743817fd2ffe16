"""Messages per job, counted by the servers in a separate run, so that counting does not slow down measured trials.

Some hundred jobs are submitted one by one, and clients poll rarely; so the count has the messages that the topology
needs for a job, and those that it sends while it is idle.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import grpc
import msgspec

from holdfast.proto import taskqueue_public_pb2 as pb
from holdfast.proto import taskqueue_public_pb2_grpc as rpc
from holdfast.server.message_counts import EVENT
from holdfast_lab.compare.idle_wait import quieten
from holdfast_lab.compare.topologies import RunningTopology, Topology, TopologyError, started

#: Messages of the count itself.
_APART = frozenset({"/taskqueue.v1.TaskQueuePublicService/ListJobs"})
_SUBMIT_S = 5.0
#: Long, because polling sends messages too.
_LOOK_S = 0.5


class Messages(msgspec.Struct, frozen=True):
    """Messages received and sent by a topology's servers for these jobs, by method; with a `refusal`, none."""

    topology: str
    jobs: int
    by_method: dict[str, int] = {}
    refusal: str = ""

    @property
    def per_job(self) -> float:
        return sum(self.by_method.values()) / self.jobs


async def count_messages(topology: Topology, jobs: int) -> Messages:
    """Start the topology and count, unless its messages cannot be counted."""
    if topology.uncounted:
        return Messages(topology.name, jobs, refusal=topology.uncounted)
    try:
        with contextlib.ExitStack() as stack:
            async with started(topology, is_counted=True) as running:
                await _submit(running, jobs)
                if not await quieten(running, look_s=_LOOK_S):
                    return Messages(topology.name, jobs, refusal="its jobs did not end in time")
                log = stack.enter_context(running.log.open())
            # Servers write their counts when they end; the open file survives the removal of its folder.
            return counted(topology.name, jobs, log.read())
    except TopologyError as error:
        return Messages(topology.name, jobs, refusal=str(error))
    except grpc.aio.AioRpcError as error:
        return Messages(topology.name, jobs, refusal=f"a submit failed with {error.code().name}")


async def _submit(running: RunningTopology, jobs: int) -> None:
    request = pb.SubmitJobRequest(spec=pb.JobSpec(job_type="sim", payload_size_bytes=64))
    channels = [grpc.aio.insecure_channel(target) for target in running.targets]
    stubs = [rpc.TaskQueuePublicServiceStub(channel) for channel in channels]
    try:
        for number in range(jobs):
            await stubs[number % len(stubs)].SubmitJob(request, timeout=_SUBMIT_S)
    finally:
        for channel in channels:
            await channel.close(None)


def counted(topology: str, jobs: int, log: str) -> Messages:
    """The counts in the lines of a log; a log without counts is a refusal."""
    found: Counter[str] = Counter()
    lines = [line for line in log.splitlines() if f'"{EVENT}"' in line]
    for line in lines:
        told: Mapping[str, Mapping[str, int]] = json.loads(line)
        found += Counter(told["received"]) + Counter(told["sent"])
    if not lines:
        return Messages(topology, jobs, refusal="no server logged its counts")
    return Messages(topology, jobs, {name: count for name, count in sorted(found.items()) if name not in _APART})


def short(method: str) -> str:
    """The name of a method without its service."""
    return Path(method).name
