"""Conversion of port values into `holdfast.v1` requests, and of its responses into port values."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from holdfast.core.capabilities import Capabilities, Capability
from holdfast.core.commands import Refusal, Submitted
from holdfast.core.history import Entry
from holdfast.core.lifecycle import State
from holdfast.core.model import EXPONENTIAL, FIXED, QUADRATIC, BackoffRule, Extra, QueueMode, Template
from holdfast.errors import Code, InvalidArgumentError
from holdfast.ports import JobDraft, JobQuery, JobView, Progress, QueueView, ResultView, Stats, WorkerView
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto.enums import job_status

Request = TypeVar("Request", bound=Message)

_KINDS = {FIXED: pb.BACKOFF_KIND_FIXED, EXPONENTIAL: pb.BACKOFF_KIND_EXPONENTIAL, QUADRATIC: pb.BACKOFF_KIND_QUADRATIC}
_KINDS_BACK = {number: kind for kind, number in _KINDS.items()}
_NO_BACKOFF = BackoffRule()


# -- requests


def made(kind: type[Request], **fields: Any) -> Request:  # noqa: ANN401 - the fields of the message
    """Builds a request; `InvalidArgumentError` for values that protobuf cannot hold, such as a negative size."""
    with sendable():
        return kind(**fields)


@contextmanager
def sendable() -> Iterator[None]:
    """Converts protobuf's errors about values that it cannot hold into `InvalidArgumentError`."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"the request cannot be encoded: {error}", reason="REQUEST_INVALID") from error


def template_message(template: Template) -> pb.JobTemplate:
    """Converts a template; a default back-off is left out."""
    message = pb.JobTemplate(
        type=template.type,
        queue=template.queue,
        priority=template.priority,
        max_attempts=template.max_attempts,
        max_losses=template.max_losses,
        timeout_ms=template.timeout_ms,
    )
    backoff = template.backoff
    if backoff != _NO_BACKOFF:
        kind = _KINDS.get(backoff.kind, cast("pb.BackoffKind", -1))
        message.backoff.CopyFrom(pb.Backoff(kind=kind, base_ms=backoff.base_ms, max_ms=backoff.max_ms))
    return message


def add_draft(request: pb.SubmitJobsRequest, draft: JobDraft) -> None:
    """Adds one job to a submit; fields with their default are left out, since most jobs have only id and payload."""
    message = request.jobs.add(payload=draft.payload, id=draft.id)
    if draft.template:
        message.template = draft.template
    if draft.delay_ms or draft.not_before_ms:
        message.delay_ms, message.not_before_ms = draft.delay_ms, draft.not_before_ms
    extra = draft.extra
    if extra is not None:
        message.request_id, message.unique_key, message.retry_of = extra.request_id, extra.unique_key, extra.retry_of
        message.labels.update(extra.labels)
        message.headers.update(extra.headers)


def query_message(query: JobQuery, cursor: str, size: int) -> pb.FindJobsRequest:
    """Converts a query with its cursor and page size."""
    return made(
        pb.FindJobsRequest,
        status=[job_status(state) for state in query.states],
        queue=query.queue,
        type=query.type,
        labels=query.labels,
        created_from_ms=query.created_from_ms,
        created_before_ms=query.created_before_ms,
        oldest_first=query.oldest_first,
        page_size=size,
        cursor=cursor,
    )


def mode_message(mode: QueueMode) -> pb.QueueMode:
    """Converts a mode; the contract and the core use the same numbers."""
    return cast("pb.QueueMode", int(mode))


# -- answers


def submitted_of(reply: pb.SubmitJobsResponse) -> Submitted:
    """The outcome of a submit, for each of its jobs."""
    refusals = {
        refusal.index: Refusal(Code(refusal.code or Code.INVALID_ARGUMENT.value), refusal.reason, refusal.message)
        for refusal in reply.refusals
    }
    return Submitted(list(reply.job_ids), reply.accepted_at_ms, refusals, frozenset(reply.existing))


def job_view(job: pb.Job) -> JobView:
    """A job as its clients see it."""
    return JobView(
        job.id,
        template_of(job.template, simulated=job.simulated),
        State(job.status),
        job.created_at_ms,
        job.started_at_ms,
        job.finished_at_ms,
        job.not_before_ms,
        job.cancel_requested,
        job.failure_reason,
        job.attempts,
        extra_of(job),
        job.failures,
        job.losses,
        job.token,
        job.worker_id,
        progress_of(job.progress) if job.HasField("progress") else None,
    )


def result_view(job: pb.Job) -> ResultView:
    """The result of a job; only its state while it has not ended."""
    return ResultView(State(job.status), job.output, job.summary, job.runtime_ms)


def template_of(template: pb.JobTemplate, *, simulated: bool) -> Template:
    """The template of a job."""
    backoff = template.backoff
    return Template(
        template.type,
        template.queue,
        template.priority,
        template.max_attempts,
        template.max_losses,
        template.timeout_ms,
        BackoffRule(_KINDS_BACK.get(backoff.kind, EXPONENTIAL), backoff.base_ms, backoff.max_ms),
        simulated,
    )


def extra_of(job: pb.Job) -> Extra | None:
    """The optional fields of a job; None if it has none of them."""
    if not (job.request_id or job.labels or job.headers or job.retry_of or job.unique_key):
        return None
    return Extra(
        request_id=job.request_id,
        labels=tuple(sorted(job.labels.items())),
        headers=tuple(sorted(job.headers.items())),
        retry_of=job.retry_of,
        unique_key=job.unique_key,
    )


def progress_of(progress: pb.Progress) -> Progress:
    """The progress of a job."""
    return Progress(progress.permille, progress.message, progress.at_ms)


def entry_of(entry: pb.Entry) -> Entry:
    """One entry of a history."""
    return Entry(
        entry.position,
        entry.at_ms,
        entry.job_id,
        entry.what,
        entry.state,
        entry.worker_id,
        entry.token,
        entry.reason,
        entry.detail,
    )


def queue_view(queue: pb.Queue) -> QueueView:
    """One queue."""
    mode = QueueMode(queue.mode)
    counts = (queue.ready, queue.delayed, queue.running, queue.oldest_age_ms)
    return QueueView(queue.name, mode, queue.reason, *counts, dict(queue.types))


def worker_view(worker: pb.Worker) -> WorkerView:
    """One worker."""
    return WorkerView(
        worker.worker_id,
        list(worker.types),
        list(worker.queues),
        worker.slots,
        worker.running,
        worker.draining,
        worker.streaming,
        worker.heard_ms_ago,
    )


def stats_of(stats: pb.Stats) -> Stats:
    """Numbers about the whole system."""
    return Stats(
        stats.position,
        stats.now_ms,
        dict(stats.states),
        stats.bytes_held,
        stats.epoch,
        stats.cluster_id,
        stats.workers,
        stats.slots,
        stats.leases,
        stats.socket,
        stats.nodes,
        stats.node_index,
        stats.bytes_held_max,
        tuple(stats.warnings),
    )


def capabilities_of(told: pb.Capabilities) -> Capabilities:
    """The capabilities of a server's backend; names that this version does not know are left out."""
    return Capabilities(
        told.backend, frozenset(one for one in Capability if one.value in told.capabilities), told.version
    )
