"""What the SDK raises beyond the errors that every interface shares."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.errors import (
    Code,
    DeadlineExceededError,
    FailedPreconditionError,
    HoldfastError,
    InvalidArgumentError,
)

if TYPE_CHECKING:
    from holdfast.sdk.job import Job


class ArgumentsError(InvalidArgumentError, TypeError):
    """The arguments do not fit the job's function; nothing was submitted."""


class JobFailedError(HoldfastError):
    """The job ended as FAILED. The traceback of the worker is part of the text."""

    code = Code.FAILED_PRECONDITION

    def __init__(self, job_id: str, reason: str, error_type: str = "", remote_traceback: str = "") -> None:
        """`reason` is what the job's failure says of itself; the other two are empty where no exception was raised."""
        self.job_id = job_id
        self.error_type = error_type
        self.remote_traceback = remote_traceback
        tail = f"\n\nOn the worker:\n{remote_traceback.rstrip()}" if remote_traceback else ""
        super().__init__(f"job {job_id} failed: {reason or 'no reason was given'}{tail}", reason=reason)

    def __reduce__(self) -> tuple[type, tuple[str, str, str, str]]:
        return type(self), (self.job_id, self.reason, self.error_type, self.remote_traceback)


class JobCanceledError(HoldfastError):
    """The job ended as CANCELED, so there is no result."""

    code = Code.FAILED_PRECONDITION

    def __init__(self, job_id: str, why: str = "") -> None:
        self.job_id = job_id
        self.why = why
        super().__init__(f"job {job_id} was canceled{f': {why}' if why else ''}", reason="JOB_CANCELED")

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.job_id, self.why)


class ResultTimeoutError(DeadlineExceededError, TimeoutError):
    """The job has not ended in the time that the caller would wait; the job itself goes on."""

    def __init__(self, job_id: str, timeout_s: float, why: str = "") -> None:
        """`why` says where the job is meanwhile."""
        self.job_id = job_id
        self.timeout_s = timeout_s
        self.why = why
        tail = f": {why}" if why else ""
        super().__init__(f"job {job_id} has not ended after {timeout_s:g} s{tail}", reason="RESULT_TIMEOUT")

    def __reduce__(self) -> tuple[type, tuple[str, float, str]]:
        return type(self), (self.job_id, self.timeout_s, self.why)


class ResultTypeError(FailedPreconditionError, TypeError):
    """What the job returned does not fit the return annotation that its caller knows."""


class SubmitManyError(HoldfastError):
    """Some jobs of many were not accepted.

    `jobs` has a handle for each accepted item and None for each other; `errors` says by index why it was refused, or
    that it is unknown whether it was accepted.
    """

    code = Code.FAILED_PRECONDITION

    def __init__(self, jobs: "Sequence[Job[Any] | None]", errors: Mapping[int, HoldfastError]) -> None:
        self.jobs = list(jobs)
        self.errors = dict(errors)
        index, first = min(self.errors.items())
        accepted = sum(job is not None for job in jobs)
        super().__init__(
            f"{accepted} of {len(self.jobs)} jobs were accepted, {len(self.errors)} were not;"
            f" the first of these is number {index}: {first.message}",
            reason=first.reason,
        )


class Retry(Exception):  # noqa: N818 - an order of the job's own, more than an error
    """Raised by a job: this attempt failed; try again after so many seconds (by its backoff, if none are given)."""

    def __init__(self, message: str = "", *, after_s: float | None = None) -> None:
        self.after_s = after_s
        super().__init__(message or "the job asked to be tried again")


class PermanentError(Exception):
    """Raised by a job: it failed, and no other attempt can help."""
