"""A server during its recovery: its ports are open, probes are answered, and every other call is UNAVAILABLE."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from holdfast.client.retry_policy import NoRetryPolicy
from holdfast.core.model import Template
from holdfast.errors import UnavailableError
from holdfast.journal.errors import DirectoryLockedError, JournalDamagedError
from holdfast.journal.os_disk import OsDisk
from holdfast.ports import Assignment, JobDraft
from holdfast.server.ledger_server import LedgerServer
from holdfast.server.startup import StartStoppedError, Startup
from holdfast.settings import Settings
from holdfast.worker.config import WorkerConfig
from holdfast.worker.handlers import Handler
from holdfast.worker.runtime import Worker
from holdfast_lab.faults.stalling_disk import Gate, StallingDisk
from tests.integration.http_client import ask
from tests.integration.transports import REACHED, lasting_remote, work_of

NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def server_on(data: Path, gate: Gate | None = None, **settings: int) -> LedgerServer:
    """A server on free ports; with a gate, its recovery waits there."""
    chosen = Settings(data=str(data), **({"port": 0, "http_port": 0, "log_level": "error"} | settings))  # type: ignore[arg-type]
    if gate is None:
        return LedgerServer(chosen, log_stream=BytesIO())
    return LedgerServer(chosen, log_stream=BytesIO(), open_disk=lambda path: StallingDisk(OsDisk(path), gate))


@asynccontextmanager
async def starting(data: Path) -> AsyncIterator[tuple[LedgerServer, "asyncio.Task[str]", Gate]]:
    """A server with open ports whose recovery waits at the gate until the block ends."""
    gate = Gate()
    server = server_on(data, gate, metrics_port=free_port())
    with gate.shut():
        start = asyncio.create_task(server.start())
        await asyncio.to_thread(gate.is_met.wait)
        while not server.addresses:  # noqa: ASYNC110 - the ports open within a few turns of the loop
            await asyncio.sleep(0)
        yield server, start, gate
    await asyncio.wait([start])


def free_port() -> int:
    """A port that no process listens on."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return int(bound.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether a server could listen on the port."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


async def test_http_answers_probes_and_asks_others_to_come_again(tmp_path: Path) -> None:
    """During recovery HTTP answers /livez, shows its progress in /readyz, and otherwise sends 503 with Retry-After."""
    async with starting(tmp_path / "data") as (server, start, _):
        address = server.http_address
        assert (await ask(address, "GET", "/livez")).status == 200
        for probed in (address, server.metrics_address):
            reply = await ask(probed, "GET", "/readyz")
            assert (reply.status, reply.json["state"], reply.json["progress"]["stage"]) == (503, "starting", "snapshot")
        for path in ("/api/v1/stats", "/api/v1/jobs", "/", "/nowhere"):
            reply = await ask(address, "GET", path)
            assert (reply.status, reply.reason, reply.headers["retry-after"]) == (503, "SERVER_STARTING", "1")
        assert not start.done()
    assert (await ask(address, "GET", "/readyz")).status == 200
    assert (await ask(address, "GET", "/api/v1/stats")).status == 200
    assert (await ask(server.metrics_address, "GET", "/metrics")).status == 200
    await server.stop()


@pytest.mark.parametrize("kind", REACHED)
async def test_health_is_not_serving_and_calls_are_unavailable(tmp_path: Path, kind: str) -> None:
    """During recovery gRPC health is NOT_SERVING, and calls are UNAVAILABLE with the progress, over every protocol."""
    async with starting(tmp_path / "data") as (server, start, _):
        channel = grpc.aio.insecure_channel(server.address)
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert answer.status == NOT_SERVING
        early = lasting_remote(server, kind, retry_policy=NoRetryPolicy())
        with pytest.raises(UnavailableError, match="reading the snapshot") as caught:
            await early.submit([Template("x")], [JobDraft()])
        await early.close()
        assert caught.value.reason == "SERVER_STARTING"
        assert not start.done()
    answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    jobs = lasting_remote(server, kind)
    assert (await jobs.submit([Template("x")], [JobDraft()])).job_ids
    await jobs.close()
    await channel.close(None)
    await server.stop()


@pytest.mark.parametrize("kind", REACHED)
async def test_worker_that_came_early_works_once_the_server_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A worker that connects during the recovery retries, and runs jobs once the server serves."""
    ran, refused, refusal = asyncio.Event(), asyncio.Event(), Startup.error

    async def handle(_: Assignment) -> bytes:
        ran.set()
        return b""

    def error(startup: Startup) -> UnavailableError:
        refused.set()
        return refusal(startup)

    monkeypatch.setattr(Startup, "error", error)

    async with starting(tmp_path / "data") as (server, _, _gate):
        worker = Worker(work_of(server, kind), {"x": Handler(handle)}, WorkerConfig(worker_id="w"))
        working = asyncio.create_task(worker.run())
        await refused.wait()
    await server.jobs.submit([Template("x")], [JobDraft()])
    await ran.wait()
    worker.stop()
    await working
    await server.stop()


async def test_second_server_of_a_directory_opens_no_port(tmp_path: Path) -> None:
    """A second server of a directory is refused before it opens a port."""
    first = server_on(tmp_path / "data")
    await first.start()
    port = int(first.address.rpartition(":")[2])
    second = server_on(tmp_path / "data", port=port)
    with pytest.raises(DirectoryLockedError):
        await second.start()
    assert not second.addresses
    await first.stop()


async def test_recovery_that_fails_closes_the_ports(tmp_path: Path) -> None:
    """A server with a damaged journal fails to start with the usual error, and closes its ports."""
    data, ports = tmp_path / "data", (free_port(), free_port())
    server = server_on(data)
    await server.start()
    await server.stop()
    (data / "MANIFEST").write_bytes(b"damaged")
    broken = server_on(data, port=ports[0], http_port=ports[1])
    with pytest.raises(JournalDamagedError):
        await broken.start()
    assert all(map(is_free, ports))
    assert not broken.addresses


async def test_port_that_is_taken_ends_the_recovery(tmp_path: Path) -> None:
    """A port in use fails the start with the port's number, and the directory is free again."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(UnavailableError) as caught:
            await server_on(tmp_path / "data", port=taken.getsockname()[1]).start()
        assert caught.value.reason == "PORT_IN_USE"
    again = server_on(tmp_path / "data")
    await again.start()
    await again.stop()


async def test_start_can_be_given_up(tmp_path: Path) -> None:
    """A stop during the recovery ends it at its next step, closes the ports and releases the directory."""
    data = tmp_path / "data"
    gate = Gate()
    first = server_on(data)
    await first.start()
    for _ in range(3):
        await first.jobs.submit([Template("x")], [JobDraft()])
    await first.stop()
    server = server_on(data, gate)
    with gate.shut():
        start = asyncio.create_task(server.start())
        await asyncio.to_thread(gate.is_met.wait)
        server.give_up()
    with pytest.raises(StartStoppedError):
        await start
    assert not server.addresses
    again = server_on(data)
    await again.start()
    assert len(again.coordinator.ledger.state.jobs) == 3
    await again.stop()
