"""A client of one server: submit, look, wait, cancel, list, with the locked deadlines and retries."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Self, TypeVar

import grpc
import msgspec

from holdfast import limits
from holdfast.client.channel import open_channel
from holdfast.client.refusals import error_of
from holdfast.client.retrying import Retrying
from holdfast.core.lifecycle import State
from holdfast.errors import Code, FailedPreconditionError, HoldfastError, InvalidArgumentError, UnavailableError
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import holdfast_pb2_grpc as rpc
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.proto import taskqueue_public_pb2_grpc as public_rpc
from holdfast.proto.enums import job_status

T = TypeVar("T")


class SubmitOptions(msgspec.Struct, frozen=True):
    """How a job is to be run; what is not said is the server's default."""

    queue: str = limits.QUEUE_DEFAULT
    priority: int = limits.PRIORITY_DEFAULT
    delay_ms: int = 0
    request_id: str = ""
    max_attempts: int = limits.ATTEMPTS_DEFAULT
    timeout_ms: int = 0


class JobClient:
    """Calls to one server. Use it as a context manager, or close it."""

    def __init__(self, target: str, retrying: Retrying | None = None) -> None:
        self._target = target
        self._channel = open_channel(target)
        self._public: Any = public_rpc.TaskQueuePublicServiceStub(self._channel)
        self._jobs: Any = rpc.JobServiceStub(self._channel)
        self._retrying = retrying or Retrying()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection."""
        await self._channel.close(None)

    async def submit(self, job_type: str, payload: bytes, options: SubmitOptions) -> str:
        """The id of a job that is durable. Repeated by itself only under a request id."""
        template = pb.JobTemplate(
            type=job_type,
            queue=options.queue,
            priority=options.priority,
            max_attempts=options.max_attempts,
            timeout_ms=options.timeout_ms,
        )
        job = pb.NewJob(payload=payload, request_id=options.request_id, delay_ms=options.delay_ms)
        request = pb.SubmitJobsRequest(templates=[template], jobs=[job])
        is_repeatable = bool(options.request_id)
        reply = await self._call(self._jobs.SubmitJobs, request, limits.DEADLINE_MS_SUBMIT, is_repeatable=is_repeatable)
        for refusal in reply.refusals:
            raise _refused(refusal)
        return str(reply.job_ids[0])

    async def status(self, job_id: str) -> public_pb.GetJobStatusResponse:
        """The job's state."""
        request = public_pb.GetJobStatusRequest(job_id=job_id)
        return await self._call(self._public.GetJobStatus, request, limits.DEADLINE_MS_STATUS)

    async def result(self, job_id: str) -> public_pb.GetJobResultResponse:
        """The job's result; not ready is an answer, not an error."""
        request = public_pb.GetJobResultRequest(job_id=job_id)
        return await self._call(self._public.GetJobResult, request, limits.DEADLINE_MS_RESULT)

    async def explain(self, job_id: str) -> pb.ExplainJobResponse:
        """Why the job is where it is."""
        request = pb.ExplainJobRequest(job_id=job_id)
        return await self._call(self._jobs.ExplainJob, request, limits.DEADLINE_MS_STATUS)

    async def cancel(self, job_id: str, reason: str) -> public_pb.CancelJobResponse:
        """Ends a queued job, asks a running one to stop."""
        request = public_pb.CancelJobRequest(job_id=job_id, reason=reason)
        return await self._call(self._public.CancelJob, request, limits.DEADLINE_MS_CANCEL)

    async def page(
        self, states: Collection[State], token: str, size: int, *, newest_first: bool
    ) -> public_pb.ListJobsResponse:
        """One page of jobs."""
        request = public_pb.ListJobsRequest(
            status_filter=[job_status(state) for state in states],
            page=public_pb.PageRequest(page_size=size, page_token=token),
            sort=public_pb.CREATED_AT_DESC if newest_first else public_pb.CREATED_AT_ASC,
        )
        return await self._call(self._public.ListJobs, request, limits.DEADLINE_MS_LIST)

    async def _call(
        self,
        method: Callable[..., Awaitable[T]],
        request: object,
        deadline_ms: int,
        *,
        is_repeatable: bool = True,
    ) -> T:
        async def once() -> T:
            try:
                return await method(request, timeout=deadline_ms / 1_000)
            except grpc.aio.AioRpcError as error:
                raise self._explained(error) from error

        return await self._retrying.call(once, is_repeatable=is_repeatable)

    def _explained(self, error: grpc.aio.AioRpcError) -> HoldfastError:
        """The server's own words; where there are none because it cannot be reached, what to do about that."""
        known = error_of(error)
        if isinstance(known, UnavailableError) and known.reason == Code.UNAVAILABLE.value:
            message = f"no server answers at {self._target}: start one with `holdfast up`, or name another one"
            return UnavailableError(f"{message} ({known.message})", reason="UNREACHABLE")
        return known


def _refused(refusal: pb.SubmitRefusal) -> HoldfastError:
    """One job of a batch was refused; the reason says which kind of error that is."""
    if refusal.reason == "REQUEST_ID_REUSED":
        return FailedPreconditionError(refusal.message, reason=refusal.reason)
    return InvalidArgumentError(refusal.message, reason=refusal.reason)
