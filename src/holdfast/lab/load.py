"""Load over gRPC: the same client code for the yardstick and for what is measured."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Self

from holdfast.client.channel import open_channel
from holdfast.lab.echo_server import METHOD
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import holdfast_pb2_grpc as rpc
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.proto import taskqueue_public_pb2_grpc as public_rpc

PAYLOAD = b"x" * 100
BATCH = 500


async def rate(call: Callable[[], Awaitable[object]], times: int, lanes: int) -> float:
    """Calls per second with `lanes` in flight."""

    async def lane() -> None:
        for _ in range(times // lanes):
            await call()

    start = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(lanes)))
    return times // lanes * lanes / (time.perf_counter() - start)


class Client:
    """Calls to one Holdfast server."""

    def __init__(self, target: str) -> None:
        self.channel = open_channel(target)
        self._public: Any = public_rpc.TaskQueuePublicServiceStub(self.channel)
        self._jobs: Any = rpc.JobServiceStub(self.channel)
        # 100 bytes of what the frozen contract lets a client choose.
        spec = public_pb.JobSpec(job_type="bench", labels={"payload": "x" * 80})
        self._one = public_pb.SubmitJobRequest(spec=spec)
        template = pb.JobTemplate(type="bench")
        self._many = pb.SubmitJobsRequest(templates=[template], jobs=[pb.NewJob(payload=PAYLOAD)] * BATCH)

    async def submit(self) -> None:
        """One durable job over the frozen SubmitJob."""
        await self._public.SubmitJob(self._one)

    async def submit_batch(self) -> None:
        """BATCH durable jobs in one call."""
        reply = await self._jobs.SubmitJobs(self._many)
        assert all(reply.job_ids)

    async def fill(self, count: int) -> None:
        """Brings this many jobs into the queue."""
        await rate(self.submit_batch, count // BATCH, 4)

    async def walk(self, stop: asyncio.Event) -> int:
        """All pages of all jobs; how many jobs were seen."""
        token, seen = "", 0
        while not stop.is_set():
            page = public_pb.PageRequest(page_size=200, page_token=token)
            reply = await self._public.ListJobs(public_pb.ListJobsRequest(page=page))
            seen += len(reply.jobs)
            token = reply.page.next_page_token
            if not token:
                break
        return seen


class Echo:
    """Calls to the yardstick."""

    def __init__(self, target: str) -> None:
        self.channel = open_channel(target)
        self._call: Any = self.channel.unary_unary(METHOD, None, None)

    async def echo(self) -> None:
        """One round trip of 100 bytes."""
        await self._call(PAYLOAD)


class Holder:
    """A worker that takes leases and only keeps them."""

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
        # In good order, so that what it held goes back without a loss.
        await self._call.write(pb.WorkerMessage(draining=True))
        await self._call.done_writing()
        await self._watch()
        await self._channel.close(None)

    async def take(self, count: int) -> None:
        """Waits for this many leases."""
        wanted = self.held + count
        await self._call.write(pb.WorkerMessage(credits=count))
        while self.held < wanted:
            self._note(await self._call.read())

    async def beat(self, stop: asyncio.Event, interval_s: float) -> None:
        """Heartbeats until stopped; what is taken away meanwhile is counted at the end."""
        stopped = asyncio.create_task(stop.wait())
        while not stop.is_set():
            await self._call.write(pb.WorkerMessage(heartbeat=pb.Heartbeat()))
            await asyncio.wait([stopped], timeout=interval_s)

    async def _watch(self) -> None:
        while isinstance(message := await self._call.read(), pb.CoordinatorMessage):
            self._note(message)

    async def finish(self) -> None:
        """Reports all that it holds as DONE."""
        outcomes = [pb.Outcome(job_id=one.job_id, token=one.token, status=public_pb.DONE) for one in self._leases]
        for start in range(0, len(outcomes), BATCH):
            part = outcomes[start : start + BATCH]
            await self._call.write(pb.WorkerMessage(outcomes=part, report_id=start + 1))
        self._leases.clear()

    def _note(self, message: pb.CoordinatorMessage) -> None:
        self._leases += message.leases
        self.held += len(message.leases)
        self.revoked += len(message.revoked)
