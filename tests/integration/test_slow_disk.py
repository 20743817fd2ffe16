"""A disk that stalls: probes, health and heartbeats are answered meanwhile, and calls that need the disk wait."""

import asyncio
import threading
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from holdfast.core.model import Template
from holdfast.journal.os_disk import OsDisk
from holdfast.ledger.coordinator import CommandLane, Read
from holdfast.ledger.coordinator_calls import CoordinatorCaller
from holdfast.ports import JobDraft
from holdfast.proto import taskqueue_internal_pb2 as internal_pb
from holdfast.proto import taskqueue_internal_pb2_grpc as internal_rpc
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.proto import taskqueue_public_pb2_grpc as public_rpc
from holdfast.server.ledger_server import LedgerServer
from holdfast.settings import Settings
from holdfast.wire import messages as wire
from holdfast.wire import methods
from holdfast_lab.faults.stalling_disk import Gate, StallingDisk
from tests.integration.http_client import ask
from tests.integration.raw_wire import raw_wire

SERVING = health_pb2.HealthCheckResponse.SERVING


@pytest.fixture
def gate() -> Gate:
    """A gate in front of the server's disk."""
    return Gate()


@pytest.fixture
async def server(tmp_path: Path, gate: Gate) -> AsyncIterator[LedgerServer]:
    """A server on a disk that stalls while the gate is shut; small segments, so that it also starts new ones."""
    settings = Settings(data=str(tmp_path / "data"), port=0, http_port=0, log_level="error", segment_bytes=1 << 20)
    server = LedgerServer(settings, log_stream=BytesIO(), open_disk=lambda path: StallingDisk(OsDisk(path), gate))
    await server.start()
    yield server
    await server.stop()


class Worker:
    """A worker with the frozen calls, and a client."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._calls = internal_rpc.CoordinatorInternalServiceStub(channel)
        self._jobs = public_rpc.TaskQueuePublicServiceStub(channel)
        self._health = health_pb2_grpc.HealthStub(channel)

    async def submit(self) -> str:
        """Submits a job and returns its id when it is durable."""
        answer = await self._jobs.SubmitJob(public_pb.SubmitJobRequest(spec=public_pb.JobSpec(job_type="sim")))
        return str(answer.job_id)

    async def cancel(self, job_id: str) -> None:
        """Requests the cancel of a job."""
        await self._jobs.CancelJob(public_pb.CancelJobRequest(job_id=job_id))

    async def fetch(self) -> str:
        """Fetches a job and returns its id."""
        return str((await self._calls.FetchWork(internal_pb.FetchWorkRequest(worker_id="w"))).job_id)

    async def beat(self) -> list[str]:
        """Sends a heartbeat and returns the jobs to cancel."""
        answer = await self._calls.WorkerHeartbeat(internal_pb.WorkerHeartbeatRequest(worker_id="w", capacity_hint=1))
        assert answer.accepted
        return list(answer.cancel)

    async def health(self) -> int:
        """The status of gRPC health."""
        return int((await self._health.Check(health_pb2.HealthCheckRequest())).status)


async def test_probes_and_heartbeats_are_answered_while_a_sync_hangs(server: LedgerServer, gate: Gate) -> None:
    """While a sync hangs, only its caller waits, and the event loop's thread makes no call to the disk."""
    async with grpc.aio.insecure_channel(server.address) as channel:
        worker = Worker(channel)
        job_id = await worker.submit()
        assert await worker.fetch() == job_id
        with gate.shut():
            submitting = asyncio.create_task(worker.submit())
            await asyncio.to_thread(gate.is_met.wait)
            assert (await ask(server.http_address, "GET", "/livez")).status == 200
            assert (await ask(server.http_address, "GET", "/readyz")).status == 200
            assert await worker.health() == SERVING
            assert await worker.beat() == []
            assert not submitting.done()
        await submitting
    assert threading.get_ident() not in gate.waiters


async def test_loop_never_waits_for_space(server: LedgerServer, gate: Gate, tmp_path: Path) -> None:
    """While the disk stalls, the loop decides frames of any size, also where the journal's file needs more space."""
    payload = bytes(150_000)
    for _ in range(24):  # several segments and extents
        with gate.shut():
            submits = [
                asyncio.create_task(server.jobs.submit([Template("noop")], [JobDraft(payload=payload)]))
                for _ in range(3)
            ]
            await asyncio.to_thread(gate.is_met.wait)
            assert (await ask(server.http_address, "GET", "/livez")).status == 200
        await asyncio.gather(*submits)
    assert len(list((tmp_path / "data").glob("*.seg"))) > 3
    assert threading.get_ident() not in gate.waiters


async def test_heartbeat_names_a_cancellation_only_once_it_is_durable(server: LedgerServer, gate: Gate) -> None:
    """While the disk stalls, heartbeats are answered without a cancel that is not durable yet."""
    async with grpc.aio.insecure_channel(server.address) as channel:
        worker = Worker(channel)
        job_id = await worker.submit()
        assert await worker.fetch() == job_id
        with gate.shut():
            canceling = asyncio.create_task(worker.cancel(job_id))
            await asyncio.to_thread(gate.is_met.wait)
            assert await worker.beat() == []
            assert not canceling.done()
        await canceling
        assert await worker.beat() == [job_id]


READS = 1_000


async def test_reads_that_wait_for_a_sync_hold_nothing_up(
    server: LedgerServer, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a sync hangs, a thousand reads of one connection are all in progress, and a submit behind them is taken."""
    (job_id,) = (await server.jobs.submit([Template("noop")], [JobDraft()])).job_ids
    reads, read = list[CommandLane](), CoordinatorCaller.read

    async def counted(caller: CoordinatorCaller, lane: CommandLane, query: Read) -> object:
        reads.append(lane)
        return await read(caller, lane, query)

    monkeypatch.setattr(CoordinatorCaller, "read", counted)
    jobs = server.coordinator.ledger.state.jobs
    async with raw_wire(server.http_address) as line:
        await line.open()
        (connection,) = server.public_server._wire._connections
        with gate.shut():
            submitting = asyncio.create_task(server.jobs.submit([Template("noop")], [JobDraft()]))
            await asyncio.to_thread(gate.is_met.wait)
            for number in range(1, READS + 1):
                line.call(number, methods.GET, methods.OneJob(job_id))
            line.call(READS + 1, methods.SUBMIT, methods.Submission([Template("noop")], [JobDraft()]))
            while len(jobs) < 3 and not connection._holds:  # noqa: ASYNC110 - it arrives within a few turns of the loop
                await asyncio.sleep(0)
            assert (len(reads), len(jobs)) == (READS, 3)
            assert not submitting.done()
        await submitting
        replies = [await line.reply() for _ in range(READS + 1)]
    assert {(reply.id, reply.kind) for reply in replies} == {(number, wire.LAST) for number in range(1, READS + 2)}
