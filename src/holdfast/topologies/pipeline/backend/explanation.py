"""Explains the state of a job in a sentence. If several reasons apply, the one to remove first is given."""

from collections.abc import Sequence

from holdfast.core.lifecycle import RUNNING, TERMINAL
from holdfast.core.model import QueueMode
from holdfast.core.outcomes import delay_text, end_text
from holdfast.core.unknown_types import unknown_type_text
from holdfast.topologies.pipeline.backend.store import QueueAssignment, StateFacts

Answer = tuple[str, str]


def why(standing: StateFacts, places: Sequence[QueueAssignment], summary: str = "") -> Answer:
    """Returns a stable reason and a sentence; other backends use the same reasons, as far as they apply.

    `summary` is the one of the result, if the job has ended.
    """
    view = standing.view
    if view.state in TERMINAL:
        return "ENDED", end_text(view.state, view.attempts, view.failure_reason, summary)
    if view.state == RUNNING:
        return _running(standing)
    return _delayed(standing) or _paused(standing) or _without_worker(standing, places) or _on_its_way(standing)


def _running(standing: StateFacts) -> Answer:
    view = standing.view
    left_s = max(0, standing.lease_until_ms - standing.now_ms) / 1_000
    asked = "; it was asked to stop" if view.cancel_requested else ""
    return "RUNNING", f"it runs: leased by {view.worker} for another {left_s:.1f} s, attempt {view.attempts}{asked}"


def _delayed(standing: StateFacts) -> Answer | None:
    view = standing.view
    wait_ms = view.not_before_ms - standing.now_ms
    if wait_ms <= 0:
        return None
    return "DELAYED", delay_text(wait_ms, view.failures)


def _paused(standing: StateFacts) -> Answer | None:
    """A draining queue does not hold back its jobs."""
    if standing.mode != QueueMode.PAUSED:
        return None
    paused_s = (standing.now_ms - standing.mode_since_ms) / 1_000
    reason = f" ({standing.mode_reason})" if standing.mode_reason else ""
    return "QUEUE_PAUSED", f"its queue {standing.view.template.queue!r} was paused {paused_s:.1f} s ago{reason}"


def _without_worker(standing: StateFacts, places: Sequence[QueueAssignment]) -> Answer | None:
    template = standing.view.template
    if not places:
        return "NO_WORKER", "no worker is connected; start one with `holdfast worker -A module:app`"
    knowing = [place for place in places if template.route in place.kind.routes]
    if not knowing:
        return "TYPE_UNKNOWN", unknown_type_text(template.route, len(places))
    if not any(not place.kind.queues or template.queue in place.kind.queues for place in knowing):
        return "QUEUE_UNSERVED", f"no worker that knows {template.route!r} serves the queue {template.queue!r}"
    if all(place.is_draining for place in knowing):
        return "WORKERS_DRAINING", "every worker that could run it is draining and takes no more jobs"
    return None


def _on_its_way(standing: StateFacts) -> Answer:
    now_ms = standing.now_ms
    if standing.visible_ms <= now_ms:
        waits_s = (now_ms - max(standing.view.created_ms, standing.view.not_before_ms)) / 1_000
        return "WAITING_IN_QUEUE", f"it waits to be claimed by a watcher, for {waits_s:.1f} s now"
    if not standing.claimed_ms:
        left_s = (standing.visible_ms - now_ms) / 1_000
        return "WAITING_IN_QUEUE", f"no queue process had capacity for it; the next try is in {left_s:.1f} s"
    since_s = max(0, now_ms - standing.claimed_ms) / 1_000
    back_s = (standing.visible_ms - now_ms) / 1_000
    sentence = (
        f"it was handed to a queue process {since_s:.1f} s ago and waits for a free slot there;"
        f" if it got lost, it is handed out again in {back_s:.1f} s"
    )
    return "CLAIMED", sentence
