"""Conversion between values of the ports and messages of the internal contract.

Invariants: submitted values come back unchanged, with labels and headers sorted by name. A message without `options`
comes from a caller that knows only the frozen fields: it means simulated work with every option at its default. With
`options`, each number means itself; only an empty queue, an absent priority, zero attempts and an absent backoff mean
their defaults.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from google.protobuf.message import Message

from holdfast import limits
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import RUNNING, State
from holdfast.core.model import EXPONENTIAL, FIXED, QUADRATIC, BackoffRule, Extra, Template
from holdfast.core.text import as_text
from holdfast.errors import InvalidArgumentError
from holdfast.ports import Assignment, JobDraft, JobView
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public_pb

Request = TypeVar("Request", bound=Message)

UINT32_MAX = (1 << 32) - 1

_KINDS = {FIXED: pb.BACKOFF_KIND_FIXED, EXPONENTIAL: pb.BACKOFF_KIND_EXPONENTIAL, QUADRATIC: pb.BACKOFF_KIND_QUADRATIC}
_KINDS_BACK: dict[int, int] = {
    **{number: kind for kind, number in _KINDS.items()},
    pb.BACKOFF_KIND_UNSPECIFIED: EXPONENTIAL,
}

# -- submissions


def made(kind: type[Request], **fields: Any) -> Request:  # noqa: ANN401 - the fields of the message
    """Builds a message; `InvalidArgumentError` for values that protobuf cannot hold, such as a negative size."""
    with sendable():
        return kind(**fields)


@contextmanager
def sendable() -> Iterator[None]:
    """Converts protobuf's errors about values that it cannot hold into `InvalidArgumentError`."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"the request cannot be encoded: {error}", reason="REQUEST_INVALID") from error


def create_request(template: Template, draft: JobDraft, now_ms: int) -> pb.CreateJobRequest:
    """Returns the request to create one job; `InvalidArgumentError` for values that no message can hold."""
    extra = draft.extra or Extra()
    with sendable():
        return pb.CreateJobRequest(
            spec=spec_message(template, extra),
            client_request_id=extra.request_id,
            options=options_message(template, draft, now_ms),
        )


def spec_message(template: Template, extra: Extra) -> public_pb.JobSpec:
    """Returns the fields of a job that are in the frozen contract."""
    return public_pb.JobSpec(
        job_type=template.type,
        work_duration_ms=extra.work_duration_ms,
        payload_size_bytes=extra.payload_size_bytes,
        labels=dict(extra.labels),
    )


def options_message(template: Template, draft: JobDraft, now_ms: int) -> pb.JobOptions:
    """Returns the other fields. A delay that is too long for its field becomes a time relative to `now_ms`."""
    extra = draft.extra or Extra()
    delay_ms, not_before_ms = draft.delay_ms, draft.not_before_ms
    if delay_ms > UINT32_MAX:
        delay_ms, not_before_ms = 0, max(not_before_ms, now_ms + delay_ms)
    backoff = template.backoff
    return pb.JobOptions(
        queue=template.queue,
        priority=template.priority,
        not_before_ms=not_before_ms,
        max_attempts=template.max_attempts,
        max_losses=template.max_losses,
        timeout_ms=template.timeout_ms,
        payload=draft.payload,
        headers=dict(extra.headers),
        backoff=pb.RetryBackoff(kind=_KINDS[backoff.kind], base_ms=backoff.base_ms, max_ms=backoff.max_ms),
        retry_of=extra.retry_of,
        unique_key=extra.unique_key,
        job_id=draft.id,
        simulated=template.simulated,
        delay_ms=delay_ms,
    )


def submission_of(request: pb.CreateJobRequest) -> tuple[Template, JobDraft]:
    """Converts the request to create one job."""
    options = request.options
    template = template_of(request.spec, options if request.HasField("options") else None)
    extra = extra_of(request.spec, options, request.client_request_id)
    return template, JobDraft(0, options.payload, options.delay_ms, options.not_before_ms, extra, options.job_id)


def template_of(spec: public_pb.JobSpec, options: pb.JobOptions | None) -> Template:
    """Returns the common fields of its kind of jobs."""
    if options is None:
        return Template(spec.job_type, simulated=True)
    return Template(
        spec.job_type,
        options.queue or limits.QUEUE_DEFAULT,
        options.priority if options.HasField("priority") else limits.PRIORITY_DEFAULT,
        options.max_attempts or limits.ATTEMPTS_DEFAULT,
        options.max_losses,
        options.timeout_ms,
        _backoff_of(options.backoff) if options.HasField("backoff") else BackoffRule(),
        options.simulated,
    )


def _backoff_of(backoff: pb.RetryBackoff) -> BackoffRule:
    kind = _KINDS_BACK.get(backoff.kind)
    if kind is None:
        raise InvalidArgumentError(
            f"backoff.kind must be FIXED, EXPONENTIAL or QUADRATIC, got {backoff.kind}", reason="BACKOFF_INVALID"
        )
    return BackoffRule(kind, backoff.base_ms, backoff.max_ms)


def extra_of(spec: public_pb.JobSpec, options: pb.JobOptions, request_id: str = "") -> Extra | None:
    """Returns the fields that few jobs have; None if all of them are empty."""
    extra = Extra(
        request_id=request_id,
        labels=tuple(sorted(spec.labels.items())),
        headers=tuple(sorted(options.headers.items())),
        work_duration_ms=spec.work_duration_ms,
        payload_size_bytes=spec.payload_size_bytes,
        retry_of=options.retry_of,
        unique_key=options.unique_key,
    )
    return extra if extra != Extra() else None


# -- waiting jobs


def enqueue_request(
    job_id: str, template: Template, *, not_before_ms: int, order: int, created_ms: int, now_ms: int
) -> pb.EnqueueJobRequest:
    """Returns the request to enqueue a job; its age counts from the creation. `now_ms` is the job service's time."""
    return pb.EnqueueJobRequest(
        job_id=job_id,
        enqueued_at_ms=created_ms,
        queue=template.queue,
        priority=template.priority,
        not_before_ms=not_before_ms,
        route=template.route,
        order=order,
        now_ms=now_ms,
    )


def enqueue_again(record: pb.GetJobRecordResponse) -> pb.EnqueueJobRequest:
    """Returns the request to enqueue a job, from its record."""
    return enqueue_request(
        record.summary.job_id,
        template_of(record.spec, record.options),
        not_before_ms=record.options.not_before_ms,
        order=record.order,
        created_ms=record.summary.created_at_ms,
        now_ms=record.now_ms,
    )


# -- views


def job_view(record: pb.GetJobRecordResponse) -> JobView:
    """Converts a record to a job as clients see it."""
    summary = record.summary
    state = State(summary.status)
    return JobView(
        summary.job_id,
        template_of(record.spec, record.options),
        state,
        summary.created_at_ms,
        summary.started_at_ms,
        summary.finished_at_ms,
        record.options.not_before_ms,
        summary.cancel_requested,
        record.failure_reason,
        record.attempts,
        extra_of(record.spec, record.options, record.client_request_id),
        record.failures,
        record.losses,
        record.token,
        record.worker_id if state == RUNNING else "",
    )


def summary_view(summary: public_pb.JobSummary) -> JobView:
    """Converts one line of a listing; fields that it lacks stay empty."""
    return JobView(
        summary.job_id,
        Template(summary.job_type),
        State(summary.status),
        summary.created_at_ms,
        summary.started_at_ms,
        summary.finished_at_ms,
        0,
        summary.cancel_requested,
        "",
        0,
        None,
    )


# -- workers


def assignment_of(fetched: pb.FetchWorkResponse) -> Assignment:
    """Converts a lease to an assignment of a worker."""
    spec, options = fetched.spec, fetched.options
    return Assignment(
        fetched.token,
        fetched.job_id,
        spec.job_type,
        options.payload,
        fetched.attempt,
        options.timeout_ms,
        options.simulated,
        spec.work_duration_ms,
        spec.payload_size_bytes,
        dict(spec.labels),
        dict(options.headers),
        options.queue,
        # Lost attempts count here, too: after a loss, more retries may be left than this.
        max(0, options.max_attempts - fetched.attempt),
    )


def report_request(worker_id: str, row: ReportRow) -> pb.ReportWorkOutcomeRequest:
    """Returns the report of an attempt; replaces characters that cannot be encoded, and limits too large numbers."""
    return pb.ReportWorkOutcomeRequest(
        worker_id=worker_id,
        job_id=row.job_id,
        outcome=_OUTCOMES[row.state],
        runtime_ms=max(0, min(row.runtime_ms, UINT32_MAX)),
        failure_reason=as_text(row.failure_reason),
        output_summary=as_text(row.summary),
        output_bytes=row.output,
        checksum=hashlib.sha256(row.output).hexdigest(),
        token=row.token,
        is_final=not row.is_retryable,
        retry_after_ms=max(0, min(row.retry_after_ms, UINT32_MAX)),
    )


def report_row(request: pb.ReportWorkOutcomeRequest) -> ReportRow:
    """Converts a report; `InvalidArgumentError` for an unknown outcome."""
    state = _OUTCOMES_BACK.get(request.outcome)
    if state is None:
        raise InvalidArgumentError(
            f"outcome must be SUCCEEDED, FAILED or CANCELED, got {request.outcome}", reason="OUTCOME_INVALID"
        )
    return ReportRow(
        request.job_id,
        request.token,
        state,
        request.output_bytes,
        request.output_summary,
        request.failure_reason,
        request.runtime_ms,
        not request.is_final,
        request.retry_after_ms,
    )


_OUTCOMES: dict[int, public_pb.JobOutcome] = {
    State.DONE: public_pb.JOB_OUTCOME_SUCCEEDED,
    State.FAILED: public_pb.JOB_OUTCOME_FAILED,
    State.CANCELED: public_pb.JOB_OUTCOME_CANCELED,
}
_OUTCOMES_BACK: dict[int, int] = {outcome: state for state, outcome in _OUTCOMES.items()}
