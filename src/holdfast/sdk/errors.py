"""Errors of the SDK, beyond those that all interfaces share."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.outcomes import failure_text
from holdfast.errors import (
    Code,
    DeadlineExceededError,
    FailedPreconditionError,
    HoldfastError,
    InvalidArgumentError,
)

if TYPE_CHECKING:
    from holdfast.sdk.job import Job


#: Advice for a job in memory that no worker will run.
NO_WORKER_TEXT = (
    "the app keeps its jobs in memory, and no worker runs in this process; start one with `with app.worker(): ...`,"
    " or in a test call `holdfast.testing.run_jobs(app)` before `result()`"
)


class ArgumentsError(InvalidArgumentError, TypeError):
    """The arguments do not fit the job's function; nothing was submitted."""


class JobFailedError(HoldfastError):
    """The job ended as FAILED. The message contains the worker's traceback."""

    code = Code.FAILED_PRECONDITION

    def __init__(
        self, job_id: str, reason: str, error_type: str = "", remote_traceback: str = "", summary: str = ""
    ) -> None:
        """`reason` is why the job failed; `summary` may add details.

        The type and the traceback of the exception are empty if no exception was raised.
        """
        self.job_id = job_id
        self.error_type = error_type
        self.remote_traceback = remote_traceback
        self.summary = summary
        tail = f"\n\nOn the worker:\n{remote_traceback.rstrip()}" if remote_traceback else ""
        words = failure_text(reason, summary) or "no reason was given"
        super().__init__(f"job {job_id} failed: {words}{tail}", reason=reason)

    def __reduce__(self) -> tuple[type, tuple[str, str, str, str, str]]:
        return type(self), (self.job_id, self.reason, self.error_type, self.remote_traceback, self.summary)


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
    """The job has not ended within the caller's timeout; the job itself continues."""

    def __init__(self, job_id: str, timeout_s: float, why: str = "") -> None:
        """`why` explains the job's current state."""
        self.job_id = job_id
        self.timeout_s = timeout_s
        self.why = why
        tail = f": {why}" if why else ""
        super().__init__(f"job {job_id} has not ended after {timeout_s:g} s{tail}", reason="RESULT_TIMEOUT")

    def __reduce__(self) -> tuple[type, tuple[str, float, str]]:
        return type(self), (self.job_id, self.timeout_s, self.why)


class NoWorkerError(FailedPreconditionError):
    """`result()` would wait for ever: no worker runs in this process, and no other process can run the job."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"job {job_id} will not run: {NO_WORKER_TEXT}", reason="NO_WORKER")

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.job_id,)


class ResultTypeError(FailedPreconditionError, TypeError):
    """The job's result does not fit the return annotation of its function."""


class SubmitManyError(HoldfastError):
    """Some of the submitted jobs were not accepted.

    `jobs` has a handle for each accepted job and None for each of the others. `errors` has the error of each of the
    others by index: it was refused, or it is unknown whether it was accepted.
    """

    code = Code.FAILED_PRECONDITION

    def __init__(self, jobs: "Sequence[Job[Any] | None]", errors: Mapping[int, HoldfastError]) -> None:
        self.jobs = list(jobs)
        self.errors = dict(errors)
        index, first = min(self.errors.items())
        accepted = sum(job is not None for job in jobs)
        super().__init__(
            f"{accepted} of {len(self.jobs)} jobs were accepted, {len(self.errors)} were not;"
            f" the first error is at index {index}: {first.message}",
            reason=first.reason,
        )


class Retry(Exception):  # noqa: N818 - a request of the job rather than an error
    """Raised by a job to fail this attempt and be retried after `after_s` seconds; by default after its back-off."""

    def __init__(self, message: str = "", *, after_s: float | None = None) -> None:
        self.after_s = after_s
        super().__init__(message or "the job requested a retry")


class PermanentError(Exception):
    """Raised by a job to fail without another attempt."""
