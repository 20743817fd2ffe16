"""Log lines for transitions of jobs.

The process whose transaction made a transition logs it, once the transaction is known to have succeeded: a client or
gateway its submits and cancels, a worker its bids and outcomes, a steward its recoveries.
"""

from holdfast.core.lifecycle import QUEUED, State
from holdfast.observe.logs import get_logger
from holdfast.topologies.zookeeper.backend.records import Record

_REASON_CHARS_MAX = 200


def log_submitted(job_id: str, *, priority: int) -> None:
    """Logs a new job."""
    _log("transition", job_id=job_id, worker_id="", old_state="", new_state=QUEUED.name, attempt=0, priority=priority)


def log_changed(before: Record, after: Record, reason: str = "") -> None:
    """Logs a transition, or the first request to cancel a running job; other changes are not logged."""
    if before.state != after.state:
        event = "transition"
    elif after.cancel_requested and not before.cancel_requested:
        event = "cancel_requested"
    else:
        return
    _log(
        event,
        job_id=after.id,
        worker_id=after.worker or before.worker,
        old_state=State(before.state).name,
        new_state=State(after.state).name,
        attempt=after.attempts,
        priority=after.template.priority,
        reason=(after.failure_reason or reason)[:_REASON_CHARS_MAX],
    )


def _log(event: str, **fields: str | int) -> None:
    get_logger().info(event, **fields)
