"""A job service behind a real server on a free port, and its client calls."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import grpc

from holdfast.clock import SystemClock
from holdfast.core.commands import Evict
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.server.grpc.connections import ConnectionTable
from holdfast.server.grpc.request_decoder import TolerantServer
from holdfast.topologies.microservices.services.job_service import RETENTION, JobService
from holdfast.topologies.microservices.services.owner import StateOwner
from holdfast.topologies.microservices.state.records import Records

QUEUED, RUNNING, DONE, FAILED, CANCELED = (
    public_pb.QUEUED,
    public_pb.RUNNING,
    public_pb.DONE,
    public_pb.FAILED,
    public_pb.CANCELED,
)
SPEC = public_pb.JobSpec(job_type="resize an image", work_duration_ms=5, payload_size_bytes=7, labels={"a": "1"})


class JobCalls:
    """The six calls; a refused call raises `grpc.aio.AioRpcError`."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self._stub: Any = rpc.JobInternalServiceStub(channel)

    async def create(
        self,
        request_id: str = "",
        spec: public_pb.JobSpec = SPEC,
        options: pb.JobOptions | None = None,
    ) -> pb.CreateJobResponse:
        request = pb.CreateJobRequest(spec=spec, client_request_id=request_id, options=options)
        return cast("pb.CreateJobResponse", await self._stub.CreateJob(request))

    async def delete(self, job_id: str, expected: int = QUEUED) -> pb.DeleteJobIfStatusResponse:
        request = pb.DeleteJobIfStatusRequest(job_id=job_id, expected_status=cast("Any", expected))
        return cast("pb.DeleteJobIfStatusResponse", await self._stub.DeleteJobIfStatus(request))

    async def get(self, job_id: str, *, without_payload: bool = False) -> pb.GetJobRecordResponse:
        request = pb.GetJobRecordRequest(job_id=job_id, without_payload=without_payload)
        return cast("pb.GetJobRecordResponse", await self._stub.GetJobRecord(request))

    async def list(self, **fields: object) -> pb.ListJobRecordsResponse:
        request = pb.ListJobRecordsRequest(**cast("Any", fields))
        return cast("pb.ListJobRecordsResponse", await self._stub.ListJobRecords(request))

    async def move(self, job_id: str, source: int, target: int, **fields: object) -> pb.TransitionJobStatusResponse:
        request = pb.TransitionJobStatusRequest(
            job_id=job_id,
            expected_from_status=cast("Any", source),
            to_status=cast("Any", target),
            **cast("Any", fields),
        )
        return cast("pb.TransitionJobStatusResponse", await self._stub.TransitionJobStatus(request))

    async def cancel(
        self, job_id: str, reason: str = "", *, cancel_requested: bool = True
    ) -> pb.SetCancelRequestedResponse:
        request = pb.SetCancelRequestedRequest(job_id=job_id, reason=reason, cancel_requested=cancel_requested)
        return cast("pb.SetCancelRequestedResponse", await self._stub.SetCancelRequested(request))

    async def started(self) -> tuple[str, int]:
        """Returns the id of a running job, and its token."""
        job_id = (await self.create()).job_id
        return job_id, (await self.move(job_id, QUEUED, RUNNING, worker_id="w")).token


@asynccontextmanager
async def serving(
    data: Path | None = None, *, keys_max: int = 0, retention: Evict = RETENTION
) -> AsyncIterator[JobCalls]:
    """Serves this directory and yields the client calls, until the block ends."""

    def fatal(error: BaseException) -> None:
        raise error

    machine = Records(keys_max)
    state_owner = StateOwner.open(
        machine,
        data,
        clock=SystemClock(),
        loop=asyncio.get_running_loop(),
        fatal=fatal,
    )
    server = grpc.aio.server()
    service = JobService(state_owner, machine, retention=retention)
    rpc.add_JobInternalServiceServicer_to_server(service, TolerantServer(server, ConnectionTable()))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield JobCalls(channel)
    finally:
        await server.stop(None)
        await state_owner.close()
