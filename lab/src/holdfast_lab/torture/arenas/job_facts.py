"""Facts about one job from a store that keeps events: its submit, and its final state."""

from collections.abc import Iterable

from holdfast.core.model import JobRecord, NewJob, Template
from holdfast_lab.history.records import JobFact

#: The label that holds a job's name.
_NAME = "name"


def name_in(labels: Iterable[tuple[str, str]]) -> str:
    """Returns the name of a job with these labels, or an empty string."""
    return dict(labels).get(_NAME, "")


def job_fact(
    row: NewJob, template: Template, job: JobRecord, *, at_ms: int, number: int, store: str, run: str
) -> JobFact:
    """Builds the fact from `row` and `template`, as submitted, and `job`, as it is after all events."""
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
