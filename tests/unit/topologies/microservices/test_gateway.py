"""The gateway of the microservices: it serves clients, and tells workers where to connect."""

from collections.abc import AsyncIterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from holdfast.client.channel import open_channel
from holdfast.client.grpc_transport import GrpcCarrier
from holdfast.client.refusals import error_of
from holdfast.client.remote import RemoteJobs
from holdfast.client.work_stream import StreamWork
from holdfast.core.lifecycle import QUEUED
from holdfast.core.model import Template
from holdfast.errors import HoldfastError, UnimplementedError
from holdfast.ports import Introduction, JobDraft
from holdfast.proto import holdfast_pb2
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.server.backend import Backend
from holdfast.server.grpc.server import GrpcServer
from holdfast.topologies.microservices import MICROSERVICES, gateway
from holdfast.worker.builtin import BUILTIN
from holdfast.worker.config import WorkerConfig
from holdfast.worker.runtime import Worker
from tests.unit.topologies.microservices.services_in_process import HOST, services_here

ELSEWHERE = "holdfast service worker"


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with services_here() as services:
        backend = Backend(services.jobs(), declared=MICROSERVICES, elsewhere=gateway.ELSEWHERE)
        server = GrpcServer(has_reflection=True)
        server.add(backend, holdfast_pb2.Welcome())
        yield await server.start(HOST, 0)
        await server.stop(0)


async def test_clients_are_served(address: str) -> None:
    """A client can submit and read jobs through the gateway."""
    async with RemoteJobs(GrpcCarrier(address)) as jobs:
        job_id = (await jobs.submit([Template("brew")], [JobDraft()])).job_ids[0]
        assert (await jobs.get(job_id)).state == QUEUED


async def test_what_the_services_do_not_have_is_said(address: str) -> None:
    """Administration and history are UNIMPLEMENTED, and the message names the backend."""
    async with RemoteJobs(GrpcCarrier(address)) as jobs:
        for call in (jobs.stats(), jobs.history("x")):
            with pytest.raises(UnimplementedError) as caught:
                await call
            assert (caught.value.reason, "microservices" in caught.value.message) == ("CAPABILITY_MISSING", True)


async def test_worker_with_a_stream_is_told_where_to_connect(address: str) -> None:
    """The gateway refuses the worker stream and the unary worker calls, and names the right command."""

    async def attach() -> None:  # the refusal arrives with the open or with the first message
        session = await StreamWork(address).open(Introduction("w", frozenset({"brew"})))
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


async def test_worker_ends_where_no_work_is_served(address: str) -> None:
    """The worker does not retry, because the gateway would refuse every session."""
    worker = Worker(StreamWork(address), BUILTIN, WorkerConfig(worker_id="w"))
    with pytest.raises(UnimplementedError, match=ELSEWHERE):
        await worker.run()


async def test_health_names_only_what_is_served(address: str) -> None:
    """The health service knows the public service, and does not know the work service."""
    async with open_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        served = await stub.Check(health_pb2.HealthCheckRequest(service="taskqueue.v1.TaskQueuePublicService"))
        assert served.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Check(health_pb2.HealthCheckRequest(service="holdfast.v1.WorkService"))
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND
