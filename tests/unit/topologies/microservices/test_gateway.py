"""The gateway of the microservices: it serves clients, and tells workers where to connect."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from holdfast.client.endpoints import TcpEndpoint
from holdfast.client.remote import RemoteJobs
from holdfast.client.wire_transport import tcp_transport
from holdfast.client.wire_work import WireWork
from holdfast.core.lifecycle import QUEUED
from holdfast.core.model import Template
from holdfast.errors import HoldfastError, UnimplementedError
from holdfast.ports import Introduction, JobDraft, WorkApi
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.server.backend import Backend
from holdfast.server.public_server import PublicServer
from holdfast.settings import Settings
from holdfast.topologies.microservices import MICROSERVICES, gateway
from holdfast.topologies.microservices.grpc_channel import open_channel
from holdfast.topologies.microservices.grpc_errors import error_of
from holdfast.worker.builtin import BUILTIN
from holdfast.worker.config import WorkerConfig
from holdfast.worker.runtime import Worker
from tests.grpc_v1.grpc_transport import GrpcCarrier
from tests.grpc_v1.remote import RemoteJobs as GrpcJobs
from tests.grpc_v1.work_stream import StreamWork
from tests.unit.topologies.microservices.services_in_process import HOST, services_here

ELSEWHERE = "holdfast service worker"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[PublicServer]:
    async with services_here() as services:
        backend = Backend(services.jobs(), declared=MICROSERVICES, elsewhere=gateway.ELSEWHERE)
        server = PublicServer(backend, Settings(data=str(tmp_path), host=HOST, port=0, no_http=True))
        await server.start()
        yield server
        await server.stop(0)


@pytest.fixture
def address(server: PublicServer) -> str:
    """The address of gRPC, from which the clients of the wire are redirected."""
    return server.addresses["grpc"]


def client_of(address: str, kind: str) -> RemoteJobs | GrpcJobs:
    return RemoteJobs(tcp_transport(address)) if kind == "wire" else GrpcJobs(GrpcCarrier(address))


def work_of(address: str, kind: str) -> WorkApi:
    return WireWork(TcpEndpoint(address)) if kind == "wire" else StreamWork(address)


EVERY_PROTOCOL = pytest.mark.parametrize("kind", ["wire", "grpc"])


@EVERY_PROTOCOL
async def test_clients_are_served(address: str, kind: str) -> None:
    """A client can submit and read jobs through the gateway."""
    async with client_of(address, kind) as jobs:
        job_id = (await jobs.submit([Template("brew")], [JobDraft()])).job_ids[0]
        assert (await jobs.get(job_id)).state == QUEUED


@EVERY_PROTOCOL
async def test_administration_and_history_are_unimplemented(address: str, kind: str) -> None:
    """Administration and history are UNIMPLEMENTED, and the message names the backend."""
    async with client_of(address, kind) as jobs:
        for call in (jobs.stats(), jobs.history("x")):
            with pytest.raises(UnimplementedError) as caught:
                await call
            assert (caught.value.reason, "microservices" in caught.value.message) == ("CAPABILITY_MISSING", True)


@EVERY_PROTOCOL
async def test_worker_with_a_stream_is_told_where_to_connect(address: str, kind: str) -> None:
    """The gateway refuses the sessions and the unary calls of workers, and names the right command."""

    async def attach() -> None:  # the refusal arrives with the open or with the first message
        session = await work_of(address, kind).open(Introduction("w", frozenset({"brew"})))
        try:
            await session.next()
        finally:
            await session.close()

    with pytest.raises(HoldfastError, match=ELSEWHERE):
        await attach()
    async with open_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await rpc.CoordinatorInternalServiceStub(channel).FetchWork(pb.FetchWorkRequest(worker_id="w"))
    error = error_of(caught.value)
    assert isinstance(error, UnimplementedError)
    assert (error.reason, ELSEWHERE in error.message) == ("WORK_ELSEWHERE", True)


@EVERY_PROTOCOL
async def test_worker_ends_where_no_work_is_served(address: str, kind: str) -> None:
    """The worker does not retry, because the gateway would refuse every session."""
    worker = Worker(work_of(address, kind), BUILTIN, WorkerConfig(worker_id="w"))
    with pytest.raises(UnimplementedError, match=ELSEWHERE):
        await worker.run()


async def test_health_knows_only_the_public_service(address: str) -> None:
    """The health service knows the public service, and does not know the work service."""
    async with open_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        served = await stub.Check(health_pb2.HealthCheckRequest(service="taskqueue.v1.TaskQueuePublicService"))
        assert served.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Check(health_pb2.HealthCheckRequest(service="holdfast.v1.WorkService"))
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND
