"""Explains in a sentence why a job is in its current state.

It reads the ledger's state and the registered workers; it changes nothing. The first applicable reason is returned, in
the order in which they would have to be removed.
"""

from collections.abc import Sequence

from holdfast.core.ledger import Ledger
from holdfast.core.lifecycle import QUEUED, RUNNING, TERMINAL
from holdfast.core.model import JobRecord, Now, QueueMode
from holdfast.core.outcomes import delay_text, end_text
from holdfast.core.unknown_types import unknown_type_text
from holdfast.core.workers import WorkerInfo

Answer = tuple[str, str]


def why(ledger: Ledger, job: JobRecord, workers: Sequence[WorkerInfo], now: Now) -> Answer:
    """A stable reason and a sentence."""
    if job.state in TERMINAL:
        return _ended(job)
    if job.state == RUNNING:
        return _running(ledger, job, now)
    assert job.state == QUEUED
    return _delayed(job, now) or _paused(ledger, job, now) or _without_worker(job, workers) or _behind(ledger, job)


def _ended(job: JobRecord) -> Answer:
    result = job.result
    reason, summary = (result.failure_reason, result.summary) if result else ("", "")
    return "ENDED", end_text(job.state, job.attempts, reason, summary)


def _running(ledger: Ledger, job: JobRecord, now: Now) -> Answer:
    lease = ledger.state.leases[job.token]
    left_s = max(0, lease.deadline_ms - now.served_ms) / 1_000
    asked = "; it was asked to stop" if job.cancel_requested else ""
    sentence = f"it runs: leased by {lease.worker} for another {left_s:.1f} s, attempt {job.attempts}{asked}"
    return "RUNNING", sentence


def _delayed(job: JobRecord, now: Now) -> Answer | None:
    wait_ms = job.not_before_ms - now.log_ms
    if wait_ms <= 0:
        return None
    return "DELAYED", delay_text(wait_ms, job.failures)


def _paused(ledger: Ledger, job: JobRecord, now: Now) -> Answer | None:
    """The pause of the job's queue, if any; a draining queue still grants its jobs."""
    closure = ledger.state.modes.get(job.template.queue)
    if closure is None or closure.mode != QueueMode.PAUSED:
        return None
    paused_s = (now.log_ms - closure.at_ms) / 1_000
    why_paused = f" ({closure.reason})" if closure.reason else ""
    return "QUEUE_PAUSED", f"its queue {job.template.queue!r} was paused {paused_s:.1f} s ago{why_paused}"


def _without_worker(job: JobRecord, workers: Sequence[WorkerInfo]) -> Answer | None:
    template = job.template
    if not workers:
        return "NO_WORKER", "no worker is connected; start one with `holdfast worker -A module:app`"
    knowing = [worker for worker in workers if template.route in worker.routes]
    if not knowing:
        return "TYPE_UNKNOWN", unknown_type_text(template.route, len(workers))
    if not any(not worker.queues or template.queue in worker.queues for worker in knowing):
        return "QUEUE_UNSERVED", f"no worker that knows {template.route!r} serves the queue {template.queue!r}"
    if all(worker.is_draining for worker in knowing):
        return "WORKERS_DRAINING", "every worker that could run it is draining and takes no more jobs"
    return None


def _behind(ledger: Ledger, job: JobRecord) -> Answer:
    """The number of jobs ahead in the same lane; the order between lanes depends on the next worker."""
    lane = ledger.state.ready.lane_of(job)
    ahead = 0
    for other in lane.in_order():
        if other is job or ahead == _COUNTED_MAX:
            break
        ahead += 1
    if ahead == 0:
        return "NEXT", "it is next in its queue and waits for a free slot"
    number = f"more than {ahead}" if ahead == _COUNTED_MAX else str(ahead)
    return (
        "BEHIND_OTHERS",
        f"it waits behind {number} other job{'s' if ahead != 1 else ''} of its queue, type and priority",
    )


#: The count stops here, because counting more jobs would take too long.
_COUNTED_MAX = 10_000
