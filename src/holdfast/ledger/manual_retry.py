"""What a job that has ended is like when somebody has it done again: a new job, known by the old one's id."""

from holdfast.core.commands import Refusal
from holdfast.core.lifecycle import TERMINAL, State
from holdfast.core.model import Extra
from holdfast.errors import Code
from holdfast.ports import JobDraft


def refusal_to_repeat(job_id: str, state: int) -> Refusal | None:
    """Only what has ended can be done again."""
    if state in TERMINAL:
        return None
    message = f"job {job_id!r} is {State(state).name}; only a job that has ended can be retried"
    return Refusal(Code.FAILED_PRECONDITION, "JOB_NOT_ENDED", message)


def repeated(job_id: str, payload: bytes, extra: Extra | None, request_id: str) -> JobDraft:
    """The same payload, labels and headers; the keys of the first submission are not the second one's."""
    extra = extra or Extra()
    again = Extra(
        request_id=request_id,
        labels=extra.labels,
        headers=extra.headers,
        work_duration_ms=extra.work_duration_ms,
        payload_size_bytes=extra.payload_size_bytes,
        retry_of=job_id,
    )
    return JobDraft(payload=payload, extra=again)
