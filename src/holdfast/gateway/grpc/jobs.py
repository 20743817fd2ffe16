"""`holdfast.v1.JobService`: what the product adds for clients."""

from holdfast import limits
from holdfast.backends.ports import JobApi, JobDraft
from holdfast.core.model import EXPONENTIAL, FIXED, QUADRATIC, Backoff, Extra, Template
from holdfast.errors import InvalidArgumentError
from holdfast.gateway.grpc.public import checked_id
from holdfast.gateway.grpc.status import Context, answered
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import holdfast_pb2_grpc as rpc
from holdfast.proto.enums import job_status

_KINDS = {
    pb.BACKOFF_KIND_UNSPECIFIED: EXPONENTIAL,
    pb.BACKOFF_KIND_FIXED: FIXED,
    pb.BACKOFF_KIND_EXPONENTIAL: EXPONENTIAL,
    pb.BACKOFF_KIND_QUADRATIC: QUADRATIC,
}


class JobService(rpc.JobServiceServicer):
    """Real jobs: submission, and an answer to why one is not running."""

    def __init__(self, jobs: JobApi) -> None:
        self._jobs = jobs

    @answered
    async def SubmitJobs(self, request: pb.SubmitJobsRequest, context: Context) -> pb.SubmitJobsResponse:
        """Accepts a batch as one event; what cannot be accepted is refused one by one."""
        templates = [template_of(template) for template in request.templates]
        submitted = await self._jobs.submit(templates, [draft_of(job) for job in request.jobs])
        refusals = [
            pb.SubmitRefusal(index=index, reason=refusal.reason, message=refusal.message)
            for index, refusal in submitted.refusals.items()
        ]
        return pb.SubmitJobsResponse(job_ids=submitted.job_ids, accepted_at_ms=submitted.at_ms, refusals=refusals)

    @answered
    async def ExplainJob(self, request: pb.ExplainJobRequest, context: Context) -> pb.ExplainJobResponse:
        """Why a job is where it is."""
        explanation = await self._jobs.explain(checked_id(request.job_id))
        return pb.ExplainJobResponse(
            job_id=request.job_id,
            status=job_status(explanation.state),
            reason=explanation.reason,
            explanation=explanation.sentence,
        )


def template_of(template: pb.JobTemplate) -> Template:
    """The template as the core knows it; a zero stands for the default."""
    priority = template.priority if template.HasField("priority") else limits.PRIORITY_DEFAULT
    return Template(
        template.type,
        template.queue or limits.QUEUE_DEFAULT,
        priority,
        template.max_attempts or limits.ATTEMPTS_DEFAULT,
        template.max_losses or limits.LOSSES_DEFAULT,
        template.timeout_ms,
        backoff_of(template.backoff) if template.HasField("backoff") else Backoff(),
    )


def backoff_of(backoff: pb.Backoff) -> Backoff:
    """The backoff as the core knows it; a zero stands for the default."""
    if backoff.kind not in _KINDS:
        raise InvalidArgumentError(f"expected backoff.kind to be known, got {backoff.kind}", reason="BACKOFF_INVALID")
    default = Backoff()
    return Backoff(_KINDS[backoff.kind], backoff.base_ms or default.base_ms, backoff.max_ms or default.max_ms)


def draft_of(job: pb.NewJob) -> JobDraft:
    """One job of a batch; most have nothing but a payload."""
    extra = None
    if job.request_id or job.labels or job.headers or job.retry_of:
        extra = Extra(
            request_id=job.request_id,
            labels=tuple(sorted(job.labels.items())),
            headers=tuple(sorted(job.headers.items())),
            retry_of=job.retry_of,
        )
    return JobDraft(job.template, job.payload, job.delay_ms, job.not_before_ms, extra)
