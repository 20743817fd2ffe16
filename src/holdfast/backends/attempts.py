"""The attempts of a job, whatever its backend keeps of them: from its history, or else the last one from its result."""

from collections.abc import Awaitable, Callable

import msgspec

from holdfast.backends.ports import JobApi, JobView, ResultView
from holdfast.core.failure import traceback_of
from holdfast.core.history import LOST_OUTCOME, Attempt, Entry, attempts
from holdfast.core.lifecycle import DONE, RUNNING, TERMINAL
from holdfast.core.outcomes import LOSSES_SPENT, failure_text
from holdfast.errors import NotFoundError, UnimplementedError

History = Callable[[str], Awaitable[list[Entry]]]

_NOT_KEPT = "this topology keeps no earlier attempts"
_NO_LONGER_KEPT = "the journal no longer reaches back to earlier attempts"


class Attempts(msgspec.Struct, frozen=True):
    """The attempts of a job, oldest first, and a sentence where earlier ones are missing."""

    attempts: list[Attempt]
    missing: str = ""


async def attempts_of(jobs: JobApi, history: History, job: JobView) -> Attempts:
    """Every attempt that the backend can tell of; a backend without a history tells of the last one."""
    try:
        found = attempts(await history(job.id), job.attempts)
        missing = _NO_LONGER_KEPT
    except (UnimplementedError, NotFoundError) as error:
        found = await _last_attempt(jobs, job)
        missing = _NOT_KEPT if isinstance(error, UnimplementedError) else _NO_LONGER_KEPT
    return Attempts(found, missing if len(found) < job.attempts else "")


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
