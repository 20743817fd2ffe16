"""The load generator, with a real gRPC server in this process as its target."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from holdfast.core.owner import mint_owned
from holdfast.proto import taskqueue_public_pb2 as pb
from holdfast.proto import taskqueue_public_pb2_grpc as rpc
from holdfast_lab.compare import recorded_calls
from holdfast_lab.compare.load_client import ClientLoad, ClientTask
from holdfast_lab.compare.records import LOST, OK, Records
from holdfast_lab.compare.workloads import LIST, METHODS, STATUS, SUBMIT, Workload

STALL_S = 0.3


class Node(rpc.TaskQueuePublicServiceServicer):
    """Owns jobs that have ended when they are first read; counts calls that reached the wrong node."""

    def __init__(self, index: int, nodes: int) -> None:
        seed = iter(range(1_000_000))
        self._ids = mint_owned(lambda count: bytes(next(seed) * 31 % 251 for _ in range(count)), index, nodes)
        self.jobs: set[str] = set()
        self.strays = 0
        self.calls: Counter[str] = Counter()
        self.stalls = 0
        self.forgets = False

    async def SubmitJob(self, request: pb.SubmitJobRequest, _: object) -> pb.SubmitJobResponse:  # noqa: N802
        self.calls["SubmitJob"] += 1
        if self.stalls:
            self.stalls -= 1
            time.sleep(STALL_S)  # noqa: ASYNC251 - a stall blocks the whole process
        job_id = next(self._ids)
        self.jobs.add(job_id)
        return pb.SubmitJobResponse(job_id=job_id)

    async def GetJobStatus(self, request: pb.GetJobStatusRequest, context: Any) -> pb.GetJobStatusResponse:  # noqa: ANN401, N802
        await self._find(request.job_id, context)
        return pb.GetJobStatusResponse(status=pb.DONE, finished_at_ms=time.time_ns() // 1_000_000)

    async def GetJobResult(self, request: pb.GetJobResultRequest, context: Any) -> pb.GetJobResultResponse:  # noqa: ANN401, N802
        await self._find(request.job_id, context)
        return pb.GetJobResultResponse(result_ready=True)

    async def CancelJob(self, request: pb.CancelJobRequest, context: Any) -> pb.CancelJobResponse:  # noqa: ANN401, N802
        await self._find(request.job_id, context)
        return pb.CancelJobResponse(accepted=True)

    async def ListJobs(self, request: pb.ListJobsRequest, _: object) -> pb.ListJobsResponse:  # noqa: N802
        self.calls["ListJobs"] += 1
        return pb.ListJobsResponse()

    async def _find(self, job_id: str, context: Any) -> None:  # noqa: ANN401
        if job_id not in self.jobs or self.forgets:
            self.strays += 1
            await context.abort(grpc.StatusCode.NOT_FOUND, "not here")


@asynccontextmanager
async def served(count: int) -> AsyncIterator[tuple[list[Node], tuple[str, ...]]]:
    """Runs this many nodes; yields them and their addresses."""
    nodes = [Node(index, count) for index in range(count)]
    servers, targets = [], []
    for node in nodes:
        server = grpc.aio.server()
        rpc.add_TaskQueuePublicServiceServicer_to_server(node, server)
        targets.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        await server.start()
        servers.append(server)
    yield nodes, tuple(targets)
    await asyncio.gather(*(server.stop(0) for server in servers))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents deadlines from expiring on a slow machine."""
    monkeypatch.setattr(recorded_calls, "_DEADLINES_S", dict.fromkeys(range(len(METHODS)), 60.0))


async def loaded(targets: tuple[str, ...], workload: Workload) -> Records:
    """Returns the records of one client that made at least one call."""
    while True:
        load = ClientLoad(ClientTask(targets=targets, workload=workload, seed=7))
        await load.caller.connect(60)
        await load.run(time.monotonic_ns())
        await load.caller.close()
        if any(load.records.requests()):
            return load.records


def workload(**changes: Any) -> Workload:  # noqa: ANN401
    return Workload(**{"name": "test", "kind": "test", "duration_s": 0.3, "warm_up_s": 0.0, **changes})


async def test_every_call_goes_to_the_owner_of_its_job() -> None:
    """With six nodes and all methods, with and without request ids, no node gets a call for another's job."""
    async with served(6) as (nodes, targets):
        duration_s, seen = 0.3, set[tuple[int, int]]()
        while seen != {(method, node) for method in range(len(METHODS)) for node in range(6)}:
            mixed = workload(mix=(4, 2, 2, 1, 1), concurrency=8, request_ids=0.5, duration_s=duration_s)
            requests = list((await loaded(targets, mixed)).requests())
            assert {one.code for one in requests} == {OK}
            seen |= {(one.method, one.node) for one in requests}
            duration_s *= 2  # until every node got every method
        assert [node.strays for node in nodes] == [0] * 6
        assert all(node.calls["SubmitJob"] and node.calls["ListJobs"] for node in nodes)


async def test_stall_is_not_hidden_from_an_open_loop() -> None:
    """Requests that were due during a stall are measured from their due time, although they were sent later."""
    async with served(1) as ((node,), targets):
        node.stalls = 1
        records = await loaded(targets, workload(mix=(1, 0, 0, 0, 0), rate=100.0))
        requests = list(records.requests())
        delayed = [one for one in requests if one.start - one.intended > STALL_S * 1e9 / 4]
        assert delayed, "no request was due during the stall"
        assert all(one.end - one.intended > one.end - one.start for one in delayed)
        assert sorted(one.intended for one in requests) == sorted({one.intended for one in requests})


async def test_open_loop_begins_at_the_same_moments_with_the_same_seed() -> None:
    """The start times of an open loop depend on the seed, and not on the responses."""
    async with served(1) as ((_,), targets):
        offsets = []
        for _ in range(2):
            load = ClientLoad(ClientTask(targets=targets, workload=workload(mix=(1, 0, 0, 0, 0), rate=50.0), seed=7))
            start = time.monotonic_ns()
            await load.run(start)
            await load.caller.close()
            offsets.append(sorted(one.intended - start for one in load.records.requests()))
        assert offsets[0] == offsets[1]
        assert offsets[0]


async def test_closed_loop_keeps_its_number_in_flight() -> None:
    """With four lanes at most four requests overlap, and sometimes four do."""
    async with served(1) as ((_,), targets):
        flying = most = 0
        while most < 4:
            records = await loaded(targets, workload(mix=(1, 0, 0, 0, 0), concurrency=4))
            for _, step in sorted(edge for one in records.requests() for edge in ((one.start, 1), (one.end, -1))):
                flying += step
                most = max(most, flying)
        assert (flying, most) == (0, 4)


async def test_life_cycle_is_submit_status_result() -> None:
    """Each job that was seen to end has its three calls, and a finish between its submit and its last read."""
    async with served(2) as ((_, _), targets):
        records = await loaded(targets, workload(concurrency=2))
        calls = Counter(METHODS[one.method] for one in records.requests())
        jobs = list(records.jobs())
        assert calls == {name: len(jobs) for name in ("SubmitJob", "GetJobStatus", "GetJobResult")}
        assert {one.status for one in jobs} == {pb.DONE}
        assert all(one.intended - 1_000_000 <= one.finished <= one.seen + 1_000_000 for one in jobs)


async def test_accepted_job_that_its_owner_does_not_know_is_lost() -> None:
    """An accepted job that its owner does not know is recorded as lost, and not waited for."""
    async with served(1) as ((node,), targets):
        node.forgets = True
        records = await loaded(targets, workload(concurrency=1, duration_s=0.1))
        assert {one.status for one in records.jobs()} == {LOST}


async def test_lanes_are_shared_out_completely() -> None:
    """Seven lanes over three clients are three, two and two."""
    tasks = [
        ClientTask(targets=("x",), workload=workload(concurrency=7), seed=1, index=index, clients=3)
        for index in range(3)
    ]
    assert [task.lanes for task in tasks] == [3, 2, 2]


async def test_listing_alone_needs_no_job() -> None:
    """A mix of one method makes only that method's calls, except that status submits a job first if none is known."""
    async with served(1) as ((_,), targets):
        only_lists = await loaded(targets, workload(mix=(0, 0, 0, 0, 1), concurrency=1, duration_s=0.1))
        assert {one.method for one in only_lists.requests()} == {LIST}
        reads = await loaded(targets, workload(mix=(0, 1, 0, 0, 0), concurrency=1, duration_s=0.1))
        methods = [one.method for one in reads.requests()]
        assert methods[0] == SUBMIT
        assert set(methods[1:]) <= {STATUS}
