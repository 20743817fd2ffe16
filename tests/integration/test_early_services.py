"""Topologies of several processes during the recovery of one: ports are open, and nothing is ready too early."""

import asyncio
from io import BytesIO
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from holdfast.core.owner import Ownership
from holdfast.errors import UnavailableError
from holdfast.journal.errors import DirectoryLockedError
from holdfast.journal.os_disk import OsDisk
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.server.ledger_server import LedgerServer
from holdfast.server.startup import StartStoppedError
from holdfast.server.unix_socket import SOCKET_NAME
from holdfast.settings import MEMORY, Settings
from holdfast.topologies.microservices.grpc_errors import error_of
from holdfast.topologies.microservices.services.environment import QueueEnvironment
from holdfast.topologies.microservices.services.queue_service import open_queue
from holdfast.topologies.microservices.services.roles import Host, OwnerService
from holdfast.topologies.monolith.front import Front, NodeAddresses
from holdfast_lab.faults.stalling_disk import Gate, StallingDisk
from tests.e2e import http_requests
from tests.e2e.slow_start import listens
from tests.e2e.wait_until import eventually
from tests.integration.http_client import ask
from tests.integration.services_on_disk import LOOPBACK, ServicesOnDisk, failing
from tests.integration.test_early_ports import free_port, is_free

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Owner:
    """A queue service whose recovery can be stalled."""

    def __init__(self, data: Path, *, is_early: bool = True) -> None:
        self.gate = Gate()
        self.listening = asyncio.Event()
        self.port = free_port()
        host = Host(
            failing,
            listening=(lambda _: self.listening.set()) if is_early else None,
            open_disk=lambda path: StallingDisk(OsDisk(path), self.gate),
        )
        service = open_queue(QueueEnvironment(port=self.port), data, host)
        assert isinstance(service, OwnerService)
        self.service = service


async def health(address: str) -> int:
    """Returns the gRPC health of a service."""
    async with grpc.aio.insecure_channel(address) as channel:
        return int((await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())).status)


async def test_owner_refuses_calls_during_its_recovery(tmp_path: Path) -> None:
    """During recovery an owner's health is NOT_SERVING and calls are UNAVAILABLE with the progress; then it serves."""
    owner = Owner(tmp_path)
    address = f"{LOOPBACK}:{owner.port}"
    request = pb.RemoveJobIfPresentRequest(job_id="3b241101-e2bb-4255-8caf-4136c566a962")
    async with grpc.aio.insecure_channel(address) as channel:
        remove = rpc.QueueInternalServiceStub(channel).RemoveJobIfPresent
        with owner.gate.shut():
            start = asyncio.create_task(owner.service.start(LOOPBACK))
            await owner.listening.wait()
            assert await health(address) == NOT_SERVING
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await remove(request)
            error = error_of(caught.value)
            assert (type(error), error.reason) == (UnavailableError, "SERVER_STARTING")
            assert "the server is starting: " in error.message
            assert not start.done()
        assert await start == address
        assert await health(address) == SERVING
        assert not (await remove(request)).removed
    await owner.service.stop()


async def test_owner_whose_port_is_probed_listens_when_it_is_ready(tmp_path: Path) -> None:
    """Without a supervisor the port opens after the recovery, so that a TCP health check means ready."""
    owner = Owner(tmp_path, is_early=False)
    with owner.gate.shut():
        start = asyncio.create_task(owner.service.start(LOOPBACK))
        await asyncio.to_thread(owner.gate.is_met.wait)
        assert is_free(owner.port)
        assert not start.done()
    assert await health(await start) == SERVING
    await owner.service.stop()


async def test_recovery_of_an_owner_can_be_given_up(tmp_path: Path) -> None:
    """A stop before the replay of the journal ends the start, closes the port and releases the directory."""
    first = Owner(tmp_path)
    async with grpc.aio.insecure_channel(await first.service.start(LOOPBACK)) as channel:
        request = pb.EnqueueJobRequest(job_id="3b241101-e2bb-4255-8caf-4136c566a962")
        await rpc.QueueInternalServiceStub(channel).EnqueueJob(request)
    await first.service.stop()
    owner = Owner(tmp_path)
    # The gate stalls the first change of the recovery, the new segment, which comes before the replay.
    with owner.gate.shut():
        start = asyncio.create_task(owner.service.start(LOOPBACK))
        await owner.listening.wait()
        await asyncio.to_thread(owner.gate.is_met.wait)
        owner.service.give_up()
    with pytest.raises(StartStoppedError):
        await start
    assert is_free(owner.port)
    again = Owner(tmp_path)
    await again.service.start(LOOPBACK)
    await again.service.stop()


async def test_second_owner_of_a_directory_opens_no_port(tmp_path: Path) -> None:
    """An owner is refused for its directory before it opens a port."""
    first, second = Owner(tmp_path), Owner(tmp_path)
    await first.service.start(LOOPBACK)
    with pytest.raises(DirectoryLockedError):
        await second.service.start(LOOPBACK)
    assert not second.listening.is_set()
    assert is_free(second.port)
    await first.service.stop()


async def refuses_everything_but_probes(address: str) -> None:
    """Checks the replies of a process that waits for others."""
    assert (await ask(address, "GET", "/livez")).status == 200
    reply = await ask(address, "GET", "/readyz")
    assert (reply.status, reply.json["state"], reply.json["progress"]["stage"]) == (503, "starting", "processes")
    for path in ("/api/v1/jobs", "/"):
        reply = await ask(address, "GET", path)
        assert (reply.status, reply.reason) == (503, "SERVER_STARTING")
        assert "waiting for the processes that store the jobs" in reply.json["detail"]


async def until_starting(address: str) -> None:
    """Waits until the first check of the other processes has ended."""
    await asyncio.to_thread(eventually, lambda: http_requests.ask(address, "/readyz").json["progress"]["total"])


async def test_gateway_answers_probes_until_its_owners_serve(tmp_path: Path) -> None:
    """A gateway of `holdfast up` answers /livez at once, and is ready when all owners are."""
    services = ServicesOnDisk(tmp_path, is_early=True, http_port=(port := free_port()))
    address = f"{LOOPBACK}:{port}"
    start = asyncio.create_task(services.gateway.start(LOOPBACK))
    await _listens(port)
    await until_starting(address)
    await refuses_everything_but_probes(address)
    for name in ("job", "queue"):
        await services.owners[name].start(LOOPBACK)
    assert not start.done()
    await services.owners["result"].start(LOOPBACK)
    await start
    assert services.gateway.addresses["http"] == address
    assert (await ask(address, "GET", "/readyz")).body == b"ready\n"
    assert await health(services.gateway.addresses["grpc"]) == SERVING
    await services.gateway.stop()
    for owner in services.owners.values():
        await owner.stop()


async def test_gateway_that_waits_can_be_given_up(tmp_path: Path) -> None:
    """A stop ends a gateway that waits for its owners, and closes its ports."""
    services = ServicesOnDisk(tmp_path, is_early=True, http_port=(port := free_port()))
    start = asyncio.create_task(services.gateway.start(LOOPBACK))
    await _listens(port)
    services.gateway.give_up()
    with pytest.raises(StartStoppedError):
        await start
    assert is_free(port)


async def test_front_answers_probes_until_its_nodes_serve(tmp_path: Path) -> None:
    """A front of `holdfast up` answers /livez at once, and is ready when all nodes are."""
    folders = [tmp_path / f"node-{index}" for index in range(2)]
    port = free_port()
    settings = Settings(data=MEMORY, http_port=port, log_level="error")
    front = Front(settings, NodeAddresses(sockets=[folder / SOCKET_NAME for folder in folders]), is_early=True)
    start = asyncio.create_task(front.start())
    await _listens(port)
    address = f"{LOOPBACK}:{port}"
    await until_starting(address)
    await refuses_everything_but_probes(address)
    nodes = [_node(folder, index) for index, folder in enumerate(folders)]
    await nodes[0].start()
    assert not start.done()
    await nodes[1].start()
    assert await start == {"http": address}
    assert (await ask(address, "GET", "/readyz")).body == b"ready\n"
    assert (await ask(address, "GET", "/api/v1/stats")).status == 200
    await front.stop()
    for node in nodes:
        await node.stop()


def _node(folder: Path, index: int) -> LedgerServer:
    settings = Settings(data=str(folder), port=0, log_level="error")
    return LedgerServer(settings, log_stream=BytesIO(), ownership=Ownership(index=index, nodes=2))


async def _listens(port: int) -> None:
    """Waits until the port is open."""
    await asyncio.to_thread(eventually, lambda: listens(port))
