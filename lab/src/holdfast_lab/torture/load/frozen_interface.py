"""Clients of the frozen contract, `taskqueue.v1`: jobs without options, one at a time."""

import itertools
from collections.abc import Sequence

from holdfast.proto import taskqueue_public_pb2 as pb
from holdfast.proto import taskqueue_public_pb2_grpc as rpc
from holdfast_lab.history.records import JobSnapshot
from holdfast_lab.torture.jobs import run_of
from holdfast_lab.torture.load.grpc_calls import Channels, called
from holdfast_lab.torture.load.interfaces import JobOrder, Page, RefusedError, SubmitReply


class FrozenInterface:
    """The connection of one client."""

    via = "grpc"
    has_ids = False
    has_options = False

    def __init__(self, channels: Channels) -> None:
        self.channels = channels
        self._stubs = channels.stubs(rpc.TaskQueuePublicServiceStub)
        self._turns = itertools.count()

    async def submit(self, orders: Sequence[JobOrder]) -> SubmitReply:
        """Submits one job; there are no batches."""
        (order,) = orders
        spec = pb.JobSpec(
            job_type=order.wanted.type,
            work_duration_ms=order.task.takes_ms,
            payload_size_bytes=order.task.output_bytes,
            labels={"name": order.wanted.name},
        )
        key = order.wanted.key
        node = self.channels.owner(key) if key else next(self._turns) % len(self._stubs)
        request = pb.SubmitJobRequest(spec=spec, client_request_id=key)
        reply = await called(self._stubs[node].SubmitJob, request)
        return SubmitReply([reply.job_id])

    async def get(self, job_id: str) -> JobSnapshot:
        """Reads the status."""
        reply = await called(self._owner(job_id).GetJobStatus, pb.GetJobStatusRequest(job_id=job_id))
        # The contract has no number of attempts; for a waiting job the start time shows whether there was one.
        attempts = int(reply.status == pb.QUEUED and reply.started_at_ms > 0)
        return JobSnapshot(job_id, int(reply.status), attempts=attempts, reason=reply.failure_reason)

    async def result(self, job_id: str, wait_s: float = 0.0) -> JobSnapshot:
        """Reads the output, once the job has ended; does not wait."""
        del wait_s
        reply = await called(self._owner(job_id).GetJobResult, pb.GetJobResultRequest(job_id=job_id))
        if not reply.result_ready:
            return JobSnapshot(job_id, 0)
        return JobSnapshot(job_id, int(reply.terminal_status), run=run_of(reply.output_bytes))

    async def cancel(self, job_id: str) -> JobSnapshot:
        """Cancels the job; returns its state afterwards."""
        request = pb.CancelJobRequest(job_id=job_id, reason="torture")
        reply = await called(self._owner(job_id).CancelJob, request)
        return JobSnapshot(job_id, int(reply.current_status))

    async def retry(self, job_id: str, key: str) -> str:
        """Refuses: the contract has no such call."""
        raise RefusedError("UNIMPLEMENTED", "NO_SUCH_CALL", f"{job_id} {key}")

    async def list(self, queue: str, cursor: str, size: int) -> Page:
        """Reads one page of all queues, from one node if there are several."""
        del queue
        node, _, rest = cursor.partition("/") if cursor else (str(next(self._turns) % len(self._stubs)), "", "")
        request = pb.ListJobsRequest(page=pb.PageRequest(page_size=size, page_token=rest))
        reply = await called(self._stubs[int(node)].ListJobs, request)
        cursor = f"{node}/{reply.page.next_page_token}" if reply.page.next_page_token else ""
        return Page([JobSnapshot(job.job_id, int(job.status)) for job in reply.jobs], cursor)

    async def set_paused(self, queue: str, *, is_paused: bool) -> None:
        """Refuses: the contract has no such call."""
        raise RefusedError("UNIMPLEMENTED", "NO_SUCH_CALL", f"{queue} {is_paused}")

    def _owner(self, job_id: str) -> "rpc.TaskQueuePublicServiceStub":
        stub: rpc.TaskQueuePublicServiceStub = self._stubs[self.channels.owner(job_id)]
        return stub

    async def close(self) -> None:
        """Closes the connections."""
        await self.channels.close()
