"""Load on a Holdfast server over gRPC."""

import asyncio
from typing import Any, Self

from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import holdfast_pb2_grpc as rpc
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.proto import taskqueue_public_pb2_grpc as public_rpc
from holdfast.topologies.microservices.grpc_channel import open_channel
from holdfast_lab.measure.echo import PAYLOAD
from holdfast_lab.measure.timing import rate

BATCH = 500


class GrpcLoadClient:
    """Calls to one Holdfast server."""

    def __init__(self, target: str) -> None:
        self.channel = open_channel(target)
        self._public: Any = public_rpc.TaskQueuePublicServiceStub(self.channel)
        self._jobs: Any = rpc.JobServiceStub(self.channel)
        # The frozen contract has no payload: 100 bytes of fields that a client chooses.
        spec = public_pb.JobSpec(job_type="bench", labels={"payload": "x" * 80})
        self._one = public_pb.SubmitJobRequest(spec=spec)
        template = pb.JobTemplate(type="bench")
        self._many = pb.SubmitJobsRequest(templates=[template], jobs=[pb.NewJob(payload=PAYLOAD)] * BATCH)

    async def submit(self) -> None:
        """Submit one durable job with the frozen SubmitJob."""
        await self._public.SubmitJob(self._one)

    async def submit_batch(self) -> None:
        """Submit BATCH durable jobs in one call."""
        reply = await self._jobs.SubmitJobs(self._many)
        assert all(reply.job_ids)

    async def fill(self, count: int) -> None:
        """Submit this many jobs."""
        await rate(self.submit_batch, count // BATCH, 4)

    async def walk(self, stop: asyncio.Event) -> int:
        """List all pages of all jobs; returns how many jobs were listed."""
        token, seen = "", 0
        while not stop.is_set():
            page = public_pb.PageRequest(page_size=200, page_token=token)
            reply = await self._public.ListJobs(public_pb.ListJobsRequest(page=page))
            seen += len(reply.jobs)
            token = reply.page.next_page_token
            if not token:
                break
        return seen


class LeaseHolder:
    """A worker that takes leases and keeps them."""

    def __init__(self, target: str, worker_id: str) -> None:
        self._channel = open_channel(target)
        self._worker_id = worker_id
        self._leases: list[pb.Lease] = []
        self.held = 0
        self.revoked = 0

    async def __aenter__(self) -> Self:
        self._call: Any = rpc.WorkServiceStub(self._channel).Work()
        hello = pb.Hello(worker_id=self._worker_id, types=["bench", "sim"], slots=1)
        await self._call.write(pb.WorkerMessage(hello=hello))
        await self._call.read()
        return self

    async def __aexit__(self, *_: object) -> None:
        # A drain returns the leases without counting a loss.
        await self._call.write(pb.WorkerMessage(draining=True))
        await self._call.done_writing()
        await self._watch()
        await self._channel.close(None)

    async def take(self, count: int) -> None:
        """Wait for this many leases."""
        wanted = self.held + count
        await self._call.write(pb.WorkerMessage(credits=count))
        while self.held < wanted:
            self._note(await self._call.read())

    async def beat(self, stop: asyncio.Event, interval_s: float) -> None:
        """Send heartbeats until stopped; revoked leases are counted at the end."""
        stopped = asyncio.create_task(stop.wait())
        while not stop.is_set():
            await self._call.write(pb.WorkerMessage(heartbeat=pb.Heartbeat()))
            await asyncio.wait([stopped], timeout=interval_s)

    async def _watch(self) -> None:
        while isinstance(message := await self._call.read(), pb.CoordinatorMessage):
            self._note(message)

    async def finish(self) -> None:
        """Report all held leases as DONE."""
        outcomes = [pb.Outcome(job_id=one.job_id, token=one.token, status=public_pb.DONE) for one in self._leases]
        for start in range(0, len(outcomes), BATCH):
            part = outcomes[start : start + BATCH]
            await self._call.write(pb.WorkerMessage(outcomes=part, report_id=start + 1))
        self._leases.clear()

    def _note(self, message: pb.CoordinatorMessage) -> None:
        self._leases += message.leases
        self.held += len(message.leases)
        self.revoked += len(message.revoked)
