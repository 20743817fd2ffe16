"""Manual retry of a finished job: a new job whose `retry_of` is the old job's id."""

from holdfast.core.commands import Refusal
from holdfast.core.lifecycle import TERMINAL, State
from holdfast.core.model import Extra
from holdfast.errors import Code
from holdfast.ports import JobDraft


def refusal_to_repeat(job_id: str, state: int) -> Refusal | None:
    """Returns a refusal if the job has not ended."""
    if state in TERMINAL:
        return None
    message = f"job {job_id!r} is {State(state).name}; only a job that has ended can be retried"
    return Refusal(Code.FAILED_PRECONDITION, "JOB_NOT_ENDED", message)


def repeated(job_id: str, payload: bytes, extra: Extra | None, request_id: str) -> JobDraft:
    """Returns a draft with the same payload, labels and headers; request id and unique key are not copied."""
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
