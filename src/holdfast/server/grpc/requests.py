"""Conversion of `holdfast.v1` requests to values of the ports."""

from holdfast import limits
from holdfast.core.model import EXPONENTIAL, FIXED, QUADRATIC, BackoffRule, Extra, QueueMode, Template
from holdfast.core.trace_context import TraceContext, carrying
from holdfast.errors import InvalidArgumentError
from holdfast.ports import JobDraft, JobQuery
from holdfast.proto import holdfast_pb2 as pb
from holdfast.server.request_checks import checked_states

_KINDS = {
    pb.BACKOFF_KIND_UNSPECIFIED: EXPONENTIAL,
    pb.BACKOFF_KIND_FIXED: FIXED,
    pb.BACKOFF_KIND_EXPONENTIAL: EXPONENTIAL,
    pb.BACKOFF_KIND_QUADRATIC: QUADRATIC,
}


def template_of(template: pb.JobTemplate) -> Template:
    """Converts a template; absent fields get their defaults."""
    return Template(
        template.type,
        template.queue or limits.QUEUE_DEFAULT,
        template.priority if template.HasField("priority") else limits.PRIORITY_DEFAULT,
        template.max_attempts or limits.ATTEMPTS_DEFAULT,
        template.max_losses if template.HasField("max_losses") else limits.LOSSES_DEFAULT,
        template.timeout_ms,
        backoff_of(template.backoff) if template.HasField("backoff") else BackoffRule(),
    )


def backoff_of(backoff: pb.Backoff) -> BackoffRule:
    """Converts a backoff; absent fields get their defaults."""
    if backoff.kind not in _KINDS:
        raise InvalidArgumentError(
            f"backoff.kind must be FIXED, EXPONENTIAL or QUADRATIC, got {backoff.kind}", reason="BACKOFF_INVALID"
        )
    default = BackoffRule()
    base_ms = backoff.base_ms if backoff.HasField("base_ms") else default.base_ms
    return BackoffRule(_KINDS[backoff.kind], base_ms, backoff.max_ms or default.max_ms)


def draft_of(job: pb.NewJob) -> JobDraft:
    """Converts one job of a batch; most have only a payload."""
    extra = None
    if job.request_id or job.labels or job.headers or job.retry_of or job.unique_key:
        extra = Extra(
            request_id=job.request_id,
            labels=tuple(sorted(job.labels.items())),
            headers=tuple(sorted(job.headers.items())),
            retry_of=job.retry_of,
            unique_key=job.unique_key,
        )
    return JobDraft(job.template, job.payload, job.delay_ms, job.not_before_ms, extra, job.id)


def carry(request: pb.SubmitJobsRequest, context: TraceContext) -> None:
    """Adds a trace context to the jobs of a batch that have none of their own."""
    for job in request.jobs:
        extra = carrying(Extra(headers=tuple(job.headers.items())), context)
        assert extra is not None
        job.headers.clear()
        job.headers.update(extra.headers)


def query_of(request: pb.FindJobsRequest) -> JobQuery:
    """Converts the filters of a search."""
    return JobQuery(
        checked_states(request.status),
        request.queue,
        request.type,
        dict(request.labels),
        request.created_from_ms,
        request.created_before_ms,
        request.oldest_first,
    )


def mode_of(mode: int) -> QueueMode:
    """Converts the mode of a queue."""
    try:
        return QueueMode(mode)
    except ValueError:
        names = ", ".join(known.name for known in QueueMode)
        raise InvalidArgumentError(f"mode must be one of {names}, got {mode}", reason="MODE_INVALID") from None
