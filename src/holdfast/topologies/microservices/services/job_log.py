"""Log lines of the job service: every durable change of state, and every guard that did not hold."""

from holdfast.core.lifecycle import QUEUED
from holdfast.core.model import Template
from holdfast.observe.logs import get_logger
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.topologies.microservices.state.record_events import CreateReply, MoveReply


def log_created(reply: CreateReply, template: Template) -> None:
    """Logs a new job; a job that existed before is not logged."""
    if not reply.is_new:
        return
    get_logger().info(
        "transition",
        method="CreateJob",
        job_id=reply.job_id,
        worker_id="",
        old_state="",
        new_state=QUEUED.name,
        attempt=0,
        priority=template.priority,
    )


def log_moved(request: pb.TransitionJobStatusRequest, reply: MoveReply) -> None:
    """Logs a move, or the reason why it was refused."""
    log, reason = get_logger(), request.reason[:200]
    if not reply.applied:
        log.info(
            "transition_refused",
            method="TransitionJobStatus",
            job_id=request.job_id,
            worker_id=request.worker_id,
            current_status=reply.state.name,
            token=request.token,
            reason=reply.why_not,
            actor=request.actor[:128],
            message="the job is not as the caller expected; nothing was changed",
        )
        return
    assert reply.before is not None
    log.info(
        "transition",
        method="TransitionJobStatus",
        job_id=request.job_id,
        worker_id=reply.worker,
        old_state=reply.before.name,
        new_state=reply.state.name,
        attempt=reply.attempt,
        priority=reply.priority,
        reason=reason,
        actor=request.actor[:128],
    )


def log_deleted(request: pb.DeleteJobIfStatusRequest, reply: MoveReply) -> None:
    """Logs the deletion of a job whose submission was undone, or the reason why it was refused."""
    log = get_logger()
    if reply.applied:
        log.info(
            "transition",
            method="DeleteJobIfStatus",
            job_id=request.job_id,
            worker_id="",
            old_state=reply.state.name,
            new_state="",
            attempt=0,
            priority=reply.priority,
            reason="deleted",
        )
    else:
        log.info(
            "deletion_refused",
            method="DeleteJobIfStatus",
            job_id=request.job_id,
            current_status=reply.state.name,
            reason=reply.why_not,
        )


def log_cancel_requested(request: pb.SetCancelRequestedRequest, reply: MoveReply) -> None:
    """Logs the first cancel request for a job."""
    get_logger().info(
        "cancel_requested",
        method="SetCancelRequested",
        job_id=request.job_id,
        worker_id=reply.worker,
        old_state=reply.state.name,
        new_state=reply.state.name,
        attempt=reply.attempt,
        priority=reply.priority,
        reason=request.reason[:200],
    )
