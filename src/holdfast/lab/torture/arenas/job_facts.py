"""What a store that keeps events says of one job: what it was made with, and what became of it."""

from collections.abc import Iterable

from holdfast.core.model import Job, NewJob, Template
from holdfast.lab.history.records import JobFact

#: The label under which a job has its name.
_NAME = "name"


def name_in(labels: Iterable[tuple[str, str]]) -> str:
    """The name of a job with these labels; empty if nobody gave it one."""
    return dict(labels).get(_NAME, "")


def job_fact(row: NewJob, template: Template, job: Job, *, at_ms: int, number: int, store: str, run: str) -> JobFact:
    """`row` and `template` are what it was made with, `job` is what it is after all events."""
    extra = row.extra
    return JobFact(
        id=row.id,
        name=name_in(extra.labels) if extra else "",
        state=job.state,
        type=template.type,
        queue=template.queue,
        priority=template.priority,
        number=number,
        store=store,
        key=extra.request_id if extra else "",
        not_before_ms=row.not_before_ms,
        created_ms=at_ms,
        grants=job.grants,
        token=job.result.token if job.result else 0,
        run=run,
        retry_of=extra.retry_of if extra else "",
        reason=job.result.failure_reason if job.result else "",
    )
