"""Clients of `holdfast.v1`."""

import itertools
from collections.abc import Sequence

from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import holdfast_pb2_grpc as rpc
from holdfast.proto import taskqueue_public_pb2 as public
from holdfast_lab.history.records import JobSnapshot
from holdfast_lab.torture.jobs import payload_of, run_of
from holdfast_lab.torture.load.grpc_calls import UNKNOWN, Channels, called
from holdfast_lab.torture.load.interfaces import BACKOFF_MS, JobOrder, Page, SubmitReply

_UNKNOWN = frozenset(code.value for code in UNKNOWN)


class GrpcInterface:
    """The connection of one client; the caller makes sure that all jobs of a batch belong to one node."""

    via = "grpc"
    has_ids = True
    has_options = True

    def __init__(self, channels: Channels) -> None:
        self.channels = channels
        self._jobs = channels.stubs(rpc.JobServiceStub)
        self._admin = channels.stubs(rpc.AdminServiceStub)
        self._turns = itertools.count()

    async def submit(self, orders: Sequence[JobOrder]) -> SubmitReply:
        """Submits all as one request, to the node that owns the first."""
        first = orders[0].wanted
        key = first.key or first.id
        node = self.channels.owner(key) if key else next(self._turns) % len(self._jobs)
        reply = await called(self._jobs[node].SubmitJobs, _request(orders))
        refusals = {one.index: one.reason or one.code for one in reply.refusals if one.code not in _UNKNOWN}
        return SubmitReply(list(reply.job_ids), refusals, list(reply.existing))

    async def get(self, job_id: str) -> JobSnapshot:
        """Reads the job with its output."""
        request = pb.GetJobRequest(job_id=job_id, with_output=True)
        return seen_of(await called(self._owner(job_id).GetJob, request))

    async def result(self, job_id: str, wait_s: float = 0.0) -> JobSnapshot:
        """Same as `get`: this interface has one call for both."""
        del wait_s
        return await self.get(job_id)

    async def cancel(self, job_id: str) -> JobSnapshot:
        """Cancels the job; returns its state afterwards."""
        request = public.CancelJobRequest(job_id=job_id, reason="torture")
        reply = await called(self._owner(job_id).CancelJob, request)
        return JobSnapshot(job_id, int(reply.current_status))

    async def retry(self, job_id: str, key: str) -> str:
        """Retries at the node that owns the job."""
        request = pb.RetryJobRequest(job_id=job_id, request_id=key)
        reply = await called(self._owner(job_id).RetryJob, request)
        return str(reply.job_id)

    async def list(self, queue: str, cursor: str, size: int) -> Page:
        """Reads one page, from one node if there are several."""
        node, _, rest = cursor.partition("/") if cursor else (str(next(self._turns) % len(self._jobs)), "", "")
        request = pb.FindJobsRequest(queue=queue, page_size=size, cursor=rest)
        reply = await called(self._jobs[int(node)].FindJobs, request)
        cursor = f"{node}/{reply.next_cursor}" if reply.next_cursor else ""
        return Page([seen_of(job) for job in reply.jobs], cursor)

    async def set_paused(self, queue: str, *, is_paused: bool) -> None:
        """Sets the mode at every node."""
        mode = pb.QUEUE_MODE_PAUSED if is_paused else pb.QUEUE_MODE_OPEN
        request = pb.SetQueueModeRequest(queue=queue, mode=mode, reason="torture")
        for stub in self._admin:
            await called(stub.SetQueueMode, request)

    async def open_jobs(self) -> Sequence[str]:
        """Returns some of the jobs that have not ended; empty only if all have ended."""
        states = [public.QUEUED, public.RUNNING]
        found = []
        for stub in self._jobs:
            cursor = ""
            while True:
                request = pb.FindJobsRequest(status=states, page_size=200, cursor=cursor)
                reply = await called(stub.FindJobs, request)
                found += [job.id for job in reply.jobs]
                cursor = reply.next_cursor
                if not cursor or found:
                    break
        return found

    def _owner(self, job_id: str) -> "rpc.JobServiceStub":
        stub: rpc.JobServiceStub = self._jobs[self.channels.owner(job_id)]
        return stub

    async def close(self) -> None:
        """Closes the connections."""
        await self.channels.close()


def seen_of(job: pb.Job) -> JobSnapshot:
    """Converts a job of a response."""
    return JobSnapshot(
        job.id,
        int(job.status),
        job.labels.get("name", ""),
        job.attempts,
        run_of(job.output),
        job.failure_reason,
    )


def _request(orders: Sequence[JobOrder]) -> pb.SubmitJobsRequest:
    templates = [
        pb.JobTemplate(
            type=order.wanted.type,
            queue=order.wanted.queue,
            priority=order.wanted.priority,
            max_attempts=order.wanted.max_attempts,
            backoff=pb.Backoff(kind=pb.BACKOFF_KIND_FIXED, base_ms=BACKOFF_MS, max_ms=BACKOFF_MS),
        )
        for order in orders
    ]
    jobs = [
        pb.NewJob(
            template=index,
            payload=payload_of(order.task),
            request_id=order.wanted.key,
            delay_ms=order.wanted.delay_ms,
            labels={"name": order.wanted.name},
            id=order.wanted.id,
        )
        for index, order in enumerate(orders)
    ]
    return pb.SubmitJobsRequest(templates=templates, jobs=jobs)
