"""The attempts of a job: all of them from its history, or else the last one from its result."""

from collections.abc import Awaitable, Callable, Iterable

import msgspec

from holdfast.core.failure import traceback_of
from holdfast.core.history import LOST_OUTCOME, Attempt, Entry, attempts
from holdfast.core.lifecycle import DONE, FAILED, RUNNING, TERMINAL
from holdfast.core.outcomes import LOSSES_SPENT, failure_text
from holdfast.errors import HoldfastError, NotFoundError, UnimplementedError
from holdfast.ports import JobApi, JobView, ResultView

History = Callable[[str], Awaitable[list[Entry]]]

_NOT_KEPT = "this topology keeps no earlier attempts"
_NO_LONGER_KEPT = "earlier attempts are no longer kept"


class JobAttempts(msgspec.Struct, frozen=True):
    """The attempts of a job, oldest first; `missing` says why earlier ones are absent."""

    attempts: list[Attempt]
    missing: str = ""


async def attempts_of(jobs: JobApi, history: History, job: JobView) -> JobAttempts:
    """Returns all attempts that the backend knows; without a readable history, only the last one.

    A history may be as long as the journal, so it is read only if the job's own fields do not cover all attempts.
    """
    if _is_whole(job):
        return JobAttempts(await _last_attempt(jobs, job))
    try:
        return attempts_in(await history(job.id), job.attempts)
    except HoldfastError as error:
        missing = _why_missing(error)
    found = await _last_attempt(jobs, job)
    return JobAttempts(found, missing if len(found) < job.attempts else "")


def attempts_in(entries: Iterable[Entry], count: int) -> JobAttempts:
    """Returns the attempts in the history of a job that has had `count` of them."""
    found = attempts(entries, count)
    return JobAttempts(found, _NO_LONGER_KEPT if len(found) < count else "")


def _is_whole(job: JobView) -> bool:
    """Whether the job's own fields cover all attempts: it never ran, or its only attempt is running or ended the job.

    A CANCELED job is not covered: it may have been canceled after its only attempt had failed.
    """
    return job.attempts == 0 or (job.attempts == 1 and job.state in {RUNNING, DONE, FAILED})


def _why_missing(error: HoldfastError) -> str:
    """Returns why the history could not be read; re-raises an error that does not allow to do without it."""
    if isinstance(error, UnimplementedError):
        return _NOT_KEPT
    if isinstance(error, NotFoundError):
        return _NO_LONGER_KEPT
    if error.retryable:
        return f"earlier attempts are missing, because the history could not be read: {error.message}"
    raise error


async def _last_attempt(jobs: JobApi, job: JobView) -> list[Attempt]:
    if job.state == RUNNING:
        return [Attempt(job.attempts, job.worker, job.token, job.started_ms, 0, job.state.name)]
    if job.state not in TERMINAL or not job.attempts:
        return []
    return [_ended_attempt(job, await jobs.result(job.id))]


def _ended_attempt(job: JobView, result: ResultView) -> Attempt:
    return Attempt(
        job.attempts,
        job.worker,
        job.token,
        job.started_ms,
        job.finished_ms,
        LOST_OUTCOME if job.failure_reason == LOSSES_SPENT else job.state.name,
        failure_text(job.failure_reason, result.summary),
        traceback_of(result.output) if job.state != DONE else "",
    )
