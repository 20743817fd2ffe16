"""Quarantine: a job that one more loss would end waits for a free worker and runs alone, both for a limited time."""

from holdfast import limits
from holdfast.core.model import JobRecord


def _is_last_chance(job: JobRecord) -> bool:
    return 0 < job.losses >= job.template.max_losses


def waits_alone_until_ms(job: JobRecord) -> int:
    """The time until which a waiting job goes only to a worker without leases; 0 for most jobs."""
    return job.lost_ms + limits.QUARANTINE_MS if job.losses and _is_last_chance(job) else 0


def runs_alone(job: JobRecord, now_ms: int) -> bool:
    """Whether the worker that runs this job gets no other jobs."""
    return _is_last_chance(job) and now_ms - job.started_ms < limits.QUARANTINE_MS
