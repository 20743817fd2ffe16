"""The state of a ledger, as plain values for the comparison with `holdfast_lab.simulation.model`."""

import heapq

from holdfast.core.lane import LaneKey
from holdfast.core.ledger import Ledger
from holdfast.core.model import JobRecord, Lease, Result, Schedule


def view_job(job: JobRecord | None) -> dict[str, object] | None:
    """Returns one job; None for one that is not kept."""
    if job is None:
        return None
    template = job.template
    return {
        "id": job.id,
        "number": job.number,
        "type": template.type,
        "lane": (template.queue, template.route, template.priority),
        "max_attempts": template.max_attempts,
        "max_losses": template.max_losses,
        "payload": job.payload,
        "request_id": job.request_id,
        "unique_key": job.unique_key,
        "created_ms": job.created_ms,
        "not_before_ms": job.not_before_ms,
        "state": job.state,
        "token": job.token,
        "attempts": job.grants,
        "failures": job.failures,
        "losses": job.losses,
        "started_ms": job.started_ms,
        "finished_ms": job.finished_ms,
        "cancel_requested": job.cancel_requested,
        "result": _view_result(job.result) if job.result else None,
    }


def _view_result(result: Result) -> tuple[int, int, bytes, str, str, int]:
    # Without a report, the summary is the ledger's own wording, which no guarantee covers.
    summary = result.summary if result.token else ""
    return result.token, result.state, result.output, summary, result.failure_reason, result.runtime_ms


def view_lease(lease: Lease) -> dict[str, object]:
    """Returns one lease, without its deadline, which is in served time and not in the stream."""
    return {
        "token": lease.token,
        "job_id": lease.job.id,
        "worker": lease.worker,
        "granted_ms": lease.granted_ms,
        "lease_ms": lease.lease_ms,
        "expires_ms": lease.expires_ms,
        "restarts": lease.restarts,
        "host": lease.host,
    }


def view_schedule(schedule: Schedule) -> dict[str, object]:
    """Returns one schedule, without its specification."""
    return {
        "name": schedule.spec.name,
        "created_ms": schedule.created_ms,
        "next_ms": schedule.next_ms,
        "last_tick_ms": schedule.last_tick_ms,
        "last_job_id": schedule.last_job_id,
        "fired": schedule.fired,
        "skipped": schedule.skipped,
        "missed": schedule.missed,
        "is_paused": schedule.is_paused,
    }


def view_ledger(ledger: Ledger) -> dict[str, object]:
    """Returns the whole state, in the shape of `Model.view`."""
    state = ledger.state
    return {
        "jobs": {job_id: view_job(job) for job_id, job in state.jobs.items()},
        "leases": {token: view_lease(lease) for token, lease in state.leases.items()},
        "keys": _view_keys(ledger),
        "unique": {name: job.id for name, job in state.unique.items()},
        "modes": {queue: tuple(closure) for queue, closure in state.modes.items()},
        "schedules": {name: view_schedule(schedule) for name, schedule in state.schedules.items()},
        "finished": [job.id for job in state.finished],
        "waiting": _view_waiting(ledger),
        "last_ms": state.last_ms,
        "last_token": state.next_token - 1,
        "last_number": state.next_number - 1,
        "position": ledger.position,
    }


def _view_keys(ledger: Ledger) -> dict[str, str]:
    state = ledger.state
    kept = [job for job in state.jobs.values() if job.request_id and state.dedup.find(job.request_id) is job]
    assert len(kept) == len(state.dedup), "a key stands for a job that is not kept"
    return {job.request_id: job.id for job in kept}


def _view_waiting(ledger: Ledger) -> dict[LaneKey, list[str]]:
    """Returns all queued jobs of the ready queue, by lane and in submit order."""
    ready = ledger.state.ready
    delayed: dict[LaneKey, list[JobRecord]] = {}
    for job in sorted(ready.not_due(), key=_number):
        template = job.template
        delayed.setdefault((template.queue, template.route, template.priority), []).append(job)
    due = {key: lane.in_order() for key, lane in ready.lanes.items()}
    return {
        key: [job.id for job in heapq.merge(due.get(key, ()), delayed.get(key, ()), key=_number)]
        for key in {**due, **delayed}
    }


def _number(job: JobRecord) -> int:
    return job.number
