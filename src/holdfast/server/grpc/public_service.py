"""The frozen public contract, `taskqueue.v1`, over any backend."""

import hashlib
import re

from holdfast import limits
from holdfast.core.lifecycle import TERMINAL, State
from holdfast.core.model import Extra, Template
from holdfast.core.trace_context import carrying, sent_context
from holdfast.errors import HoldfastError, InvalidArgumentError
from holdfast.ports import JobApi, JobDraft, JobView
from holdfast.proto import taskqueue_public_pb2 as pb
from holdfast.proto import taskqueue_public_pb2_grpc as rpc
from holdfast.proto.enums import job_status
from holdfast.server.grpc.status import Context, answered
from holdfast.server.request_checks import checked_id, checked_size, checked_states

_PAGE_TOKEN = re.compile(r"[0-9]*")


class PublicService(rpc.TaskQueuePublicServiceServicer):
    """The five methods that docs/contract.md defines."""

    def __init__(self, jobs: JobApi) -> None:
        self._jobs = jobs

    @answered
    async def SubmitJob(self, request: pb.SubmitJobRequest, context: Context) -> pb.SubmitJobResponse:
        """Submits one job; a repeated request id returns the first job."""
        spec = request.spec
        template = Template(spec.job_type, simulated=True)
        extra: Extra | None = Extra(
            request_id=request.client_request_id,
            labels=tuple(sorted(spec.labels.items())),
            work_duration_ms=spec.work_duration_ms,
            payload_size_bytes=spec.payload_size_bytes,
        )
        if sent := sent_context(context.invocation_metadata() or ()):
            extra = carrying(extra, sent)
        submitted = await self._jobs.submit([template], [JobDraft(extra=extra)])
        if refusal := submitted.refusals.get(0):
            raise refusal.error()
        return pb.SubmitJobResponse(
            job_id=submitted.job_ids[0], initial_status=pb.QUEUED, accepted_at_ms=submitted.at_ms
        )

    @answered
    async def GetJobStatus(self, request: pb.GetJobStatusRequest, context: Context) -> pb.GetJobStatusResponse:
        """Returns the authoritative state of one job."""
        job = await self._jobs.get(checked_id(request.job_id))
        return pb.GetJobStatusResponse(
            job_id=job.id,
            status=job_status(job.state),
            cancel_requested=job.cancel_requested,
            created_at_ms=job.created_ms,
            started_at_ms=job.started_ms,
            finished_at_ms=job.finished_ms,
            failure_reason=job.failure_reason if job.state == State.FAILED else "",
        )

    @answered
    async def GetJobResult(self, request: pb.GetJobResultRequest, context: Context) -> pb.GetJobResultResponse:
        """Returns the result of a finished job; for any other, `result_ready` is false, without an error."""
        result = await self._jobs.result(checked_id(request.job_id))
        if result.state not in TERMINAL:
            return pb.GetJobResultResponse(job_id=request.job_id)
        return pb.GetJobResultResponse(
            job_id=request.job_id,
            result_ready=True,
            terminal_status=job_status(result.state),
            output_bytes=result.output,
            output_summary=result.summary,
            runtime_ms=result.runtime_ms,
            checksum=hashlib.sha256(result.output).hexdigest(),
        )

    @answered
    async def CancelJob(self, request: pb.CancelJobRequest, context: Context) -> pb.CancelJobResponse:
        """Cancels a queued job; requests a running one to stop."""
        reply = await self._jobs.cancel(checked_id(request.job_id), request.reason)
        return pb.CancelJobResponse(
            job_id=request.job_id,
            accepted=True,
            current_status=job_status(reply.state),
            already_terminal=reply.was_terminal,
        )

    @answered
    async def ListJobs(self, request: pb.ListJobsRequest, context: Context) -> pb.ListJobsResponse:
        """Returns one page of jobs by creation time."""
        offset, size = checked_page(request.page)
        states = checked_states(request.status_filter)
        newest_first = checked_sort(request.sort)
        page = await self._jobs.page(states, offset, size, newest_first=newest_first)
        token = str(offset + len(page.jobs)) if page.has_more else ""
        return pb.ListJobsResponse(
            jobs=[summary(job) for job in page.jobs], page=pb.PageResponse(next_page_token=token)
        )


def summary(job: JobView) -> pb.JobSummary:
    """Returns one line of a listing."""
    return pb.JobSummary(
        job_id=job.id,
        status=job_status(job.state),
        job_type=job.template.type,
        created_at_ms=job.created_ms,
        started_at_ms=job.started_ms,
        finished_at_ms=job.finished_ms,
        cancel_requested=job.cancel_requested,
    )


def checked_page(page: pb.PageRequest) -> tuple[int, int]:
    """Returns offset and size; 0 means the default size, more than the maximum means the maximum."""
    token = page.page_token
    if len(token) > limits.PAGE_TOKEN_CHARS_MAX or not _PAGE_TOKEN.fullmatch(token):
        raise _invalid("PAGE_TOKEN_INVALID", "page_token must be empty or the next_page_token of the previous page")
    return int(token or 0), checked_size(page.page_size)


def checked_sort(sort: int) -> bool:
    """Whether the newest jobs come first, which is the default."""
    if sort not in (pb.JOB_SORT_UNSPECIFIED, pb.CREATED_AT_DESC, pb.CREATED_AT_ASC):
        raise _invalid("SORT_INVALID", f"sort must be CREATED_AT_DESC or CREATED_AT_ASC, got {sort}")
    return sort != pb.CREATED_AT_ASC


def _invalid(reason: str, message: str) -> HoldfastError:
    return InvalidArgumentError(message, reason=reason)
