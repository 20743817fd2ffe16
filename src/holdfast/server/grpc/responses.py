"""Conversion of values of the ports to messages of `holdfast.v1`."""

from typing import cast

from holdfast.core.capabilities import Capabilities
from holdfast.core.commands import Refusal
from holdfast.core.history import Entry
from holdfast.core.model import EXPONENTIAL, FIXED, QUADRATIC, BackoffRule, Template
from holdfast.ports import JobView, QueueView, ResultView, Stats, WorkerView
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto.enums import job_status

_KINDS = {
    FIXED: pb.BACKOFF_KIND_FIXED,
    EXPONENTIAL: pb.BACKOFF_KIND_EXPONENTIAL,
    QUADRATIC: pb.BACKOFF_KIND_QUADRATIC,
}


def job_message(view: JobView, result: ResultView | None = None) -> pb.Job:
    """Converts a job, with its result if there is one."""
    job = pb.Job(
        id=view.id,
        template=template_message(view.template),
        status=job_status(view.state),
        created_at_ms=view.created_ms,
        started_at_ms=view.started_ms,
        finished_at_ms=view.finished_ms,
        not_before_ms=view.not_before_ms,
        cancel_requested=view.cancel_requested,
        failure_reason=view.failure_reason,
        attempts=view.attempts,
        failures=view.failures,
        losses=view.losses,
        worker_id=view.worker,
        token=view.token,
        simulated=view.template.simulated,
    )
    _add_extra(job, view)
    if result is not None:
        job.summary, job.runtime_ms, job.output = result.summary, result.runtime_ms, result.output
    return job


def _add_extra(job: pb.Job, view: JobView) -> None:
    if view.progress is not None:
        progress = view.progress
        job.progress.CopyFrom(pb.Progress(permille=progress.permille, message=progress.message, at_ms=progress.at_ms))
    extra = view.extra
    if extra is not None:
        job.request_id, job.unique_key, job.retry_of = extra.request_id, extra.unique_key, extra.retry_of
        job.labels.update(extra.labels)
        job.headers.update(extra.headers)


def template_message(template: Template) -> pb.JobTemplate:
    """Converts a template, with every field set."""
    return pb.JobTemplate(
        type=template.type,
        queue=template.queue,
        priority=template.priority,
        max_attempts=template.max_attempts,
        max_losses=template.max_losses,
        timeout_ms=template.timeout_ms,
        backoff=backoff_message(template.backoff),
    )


def backoff_message(backoff: BackoffRule) -> pb.Backoff:
    """Converts a backoff, with every field set."""
    return pb.Backoff(kind=_KINDS[backoff.kind], base_ms=backoff.base_ms, max_ms=backoff.max_ms)


def refusal_message(index: int, refusal: Refusal) -> pb.SubmitRefusal:
    """Converts the refusal of one job of a batch."""
    return pb.SubmitRefusal(index=index, reason=refusal.reason, message=refusal.message, code=refusal.code.value)


def entry_message(entry: Entry) -> pb.Entry:
    """Converts one event of one job."""
    return pb.Entry(
        position=entry.position,
        at_ms=entry.at_ms,
        job_id=entry.job_id,
        what=entry.what,
        state=entry.state,
        worker_id=entry.worker,
        token=entry.token,
        reason=entry.reason,
        detail=entry.detail,
    )


def queue_message(view: QueueView) -> pb.Queue:
    """Converts one queue."""
    return pb.Queue(
        name=view.name,
        mode=cast("pb.QueueMode", int(view.mode)),
        reason=view.reason,
        ready=view.ready,
        delayed=view.delayed,
        running=view.running,
        oldest_age_ms=view.oldest_age_ms,
        types=view.types,
    )


def worker_message(view: WorkerView) -> pb.Worker:
    """Converts one worker."""
    return pb.Worker(
        worker_id=view.worker_id,
        types=view.types,
        queues=view.queues,
        slots=view.slots,
        running=view.running,
        draining=view.is_draining,
        streaming=view.is_streaming,
        heard_ms_ago=view.heard_ms_ago,
    )


def capabilities_message(told: Capabilities) -> pb.Capabilities:
    """Converts the capabilities of a backend, and a sentence for each missing one."""
    return pb.Capabilities(
        backend=told.backend,
        version=told.version,
        capabilities=sorted(told.present),
        missing={one.value: sentence for one, sentence in told.missing.items()},
    )


def stats_message(stats: Stats) -> pb.Stats:
    """Converts the statistics of the whole system."""
    return pb.Stats(
        position=stats.position,
        now_ms=stats.now_ms,
        states=stats.states,
        bytes_held=stats.bytes_held,
        epoch=stats.epoch,
        cluster_id=stats.cluster_id,
        workers=stats.workers,
        slots=stats.slots,
        leases=stats.leases,
        socket=stats.socket,
        nodes=stats.nodes,
        node_index=stats.node_index,
        bytes_held_max=stats.bytes_held_max,
        warnings=stats.warnings,
    )
