"""Jobs that one more loss of their worker would end: until when they wait for a worker of their own, and have it."""

from holdfast import limits
from holdfast.core.model import Job


def _is_last_chance(job: Job) -> bool:
    return 0 < job.losses >= job.template.max_losses


def waits_alone_until_ms(job: Job) -> int:
    """Until when a waiting job is granted only to a worker that holds nothing; 0 for most jobs."""
    return job.lost_ms + limits.QUARANTINE_MS if job.losses and _is_last_chance(job) else 0


def runs_alone(job: Job, now_ms: int) -> bool:
    """Whether the worker that runs this job is given no other."""
    return _is_last_chance(job) and now_ms - job.started_ms < limits.QUARANTINE_MS
