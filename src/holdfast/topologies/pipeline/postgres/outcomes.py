"""Outcomes of attempts and cancels: rows are locked in the order of their ids, decided by the core, written together.

Invariants: a row leaves RUNNING only under its lock and its token; a statement that changes the state of a row also
adds to the tallies.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.core.commands import CancelReply
from holdfast.core.failure import traceback_of
from holdfast.core.history import loss_text
from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED, RUNNING, TERMINAL, State, check
from holdfast.core.model import Result, Template
from holdfast.core.outcomes import LOSSES_SPENT, revocation_of
from holdfast.core.state_change import StateChange
from holdfast.postgres.statements import statements
from holdfast.topologies.pipeline.postgres.connections import StoreConnection
from holdfast.topologies.pipeline.postgres.notifier import tell
from holdfast.topologies.pipeline.postgres.row_values import BIGINT_MAX, TEMPLATE_END, Row, storable, template_of

_SQL = statements(__package__, "leases")


class LockedJob(msgspec.Struct, frozen=True, gc=False):
    """The columns of a locked row on which outcomes depend."""

    id: str
    template: Template
    state: int
    token: int
    result_token: int
    worker: str
    grants: int
    failures: int
    losses: int
    cancel_requested: bool
    cancel_reason: str
    created_ms: int
    not_before_ms: int
    started_ms: int
    now_ms: int

    @property
    def due_ms(self) -> int:
        """When the job could first have run; it defines its place among the waiting jobs."""
        return max(self.created_ms, self.not_before_ms)


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The change of a row; a result with the state QUEUED is a retry."""

    job: LockedJob
    result: Result
    failed: int = 0
    lost: int = 0
    not_before_ms: int = 0
    is_canceled: bool = False
    #: Why the lease was taken back; empty if it was not.
    loss: str = ""


def _locked(row: Row) -> LockedJob:
    return LockedJob(row[0], template_of(row), *row[TEMPLATE_END:])


async def _lock(connection: StoreConnection, name: str, arguments: Mapping[str, Any]) -> list[LockedJob]:
    cursor = await connection.execute(_SQL[name], arguments, binary=True)
    return [_locked(row) for row in await cursor.fetchall()]


async def lock_jobs(connection: StoreConnection, job_ids: Sequence[str]) -> dict[str, LockedJob]:
    """Locks the jobs that exist, and returns them by id."""
    return {job.id: job for job in await _lock(connection, "lock_jobs", {"ids": list(job_ids)})}


async def lock_held(connection: StoreConnection, worker: str) -> list[LockedJob]:
    """Locks all jobs that a worker runs."""
    return await _lock(connection, "lock_held", {"worker": worker})


async def lock_overdue(connection: StoreConnection, count: int) -> list[LockedJob]:
    """Locks jobs whose leases have expired, except those that another transaction has locked."""
    return await _lock(connection, "lock_overdue", {"count": count})


async def lock_waiting(connection: StoreConnection, queue: str, last: int, count: int) -> list[LockedJob]:
    """Locks up to `count` waiting jobs of a queue, none with a number above `last`."""
    return await _lock(connection, "lock_waiting", {"queue": queue, "last": last, "count": count})


def reported(job: LockedJob, result: Result) -> Outcome:
    """Returns the outcome of an accepted report."""
    is_retry = result.state == QUEUED
    not_before_ms = result.not_before_ms if is_retry else job.not_before_ms
    return Outcome(job, result, failed=int(is_retry), not_before_ms=not_before_ms, is_canceled=job.cancel_requested)


def revoked(job: LockedJob, why: str, *, is_spent: bool) -> Outcome:
    """Returns the outcome of a lease that is taken back."""
    revocation = revocation_of(job, is_spent=is_spent)
    reason, summary = "", ""
    if revocation.state != QUEUED:
        tries = job.failures + job.losses + revocation.is_spent
        summary = job.cancel_reason or f"its lease ended ({why}) after {tries} attempts"
        reason = LOSSES_SPENT if revocation.state == FAILED else ""
    return Outcome(
        job,
        Result(0, revocation.state, summary=summary, failure_reason=reason),
        lost=int(revocation.is_spent),
        not_before_ms=job.not_before_ms,
        is_canceled=job.cancel_requested,
        loss=loss_text(why, is_spent=revocation.is_spent),
    )


def queued_canceled(job: LockedJob, reason: str) -> Outcome:
    """Returns the outcome of a waiting job that is canceled."""
    return Outcome(job, Result(0, CANCELED, summary=reason), not_before_ms=job.not_before_ms, is_canceled=True)


async def settle(connection: StoreConnection, outcomes: Sequence[Outcome], now_ms: int, *, tells: bool = True) -> None:
    """Writes the outcomes, and sends notifications unless the caller does."""
    for outcome in outcomes:
        check(outcome.job.state, outcome.result.state)
    results, jobs = [outcome.result for outcome in outcomes], [outcome.job for outcome in outcomes]
    arguments: dict[str, Any] = {
        "now": now_ms,
        "ids": [job.id for job in jobs],
        "states": [result.state for result in results],
        "befores": [job.state for job in jobs],
        "queues": [job.template.queue for job in jobs],
        "not_before": [outcome.not_before_ms for outcome in outcomes],
        "visible": [max(outcome.job.created_ms, outcome.not_before_ms) for outcome in outcomes],
        "failed": [outcome.failed for outcome in outcomes],
        "lost": [outcome.lost for outcome in outcomes],
        "result_tokens": [result.token for result in results],
        "cancels": [outcome.is_canceled for outcome in outcomes],
        "outputs": [result.output for result in results],
        "summaries": [storable(result.summary) for result in results],
        "reasons": [storable(result.failure_reason) for result in results],
        "runtimes": [max(0, min(result.runtime_ms, BIGINT_MAX)) for result in results],
        "tokens": [job.token for job in jobs],
        "workers": [job.worker for job in jobs],
        "started": [job.started_ms for job in jobs],
        "details": [storable(traceback_of(result.output)) if result.state != DONE else "" for result in results],
        "losses": [outcome.loss for outcome in outcomes],
    }
    await connection.execute(_SQL["settle"], arguments)
    if connection.keeps_changes:
        connection.changed += [_change(outcome, now_ms) for outcome in outcomes]
    if tells:
        await tell(connection, arguments["ids"], is_due=QUEUED in arguments["states"])


def _change(outcome: Outcome, now_ms: int) -> StateChange:
    job, result = outcome.job, outcome.result
    # The same count as in `job_views`.
    ended = result.state in TERMINAL and result.token > 0
    attempt = job.failures + outcome.failed + job.losses + outcome.lost + ended
    reason = outcome.loss or result.failure_reason or (result.summary if job.state == QUEUED else "")
    return StateChange(now_ms, [job.id], job.state, result.state, attempt, job.template.priority, job.worker, reason)


async def cancel_one(connection: StoreConnection, job_id: str, reason: str) -> CancelReply | None:
    """Ends a waiting job, marks a running one, leaves a finished one unchanged; None if the job does not exist."""
    job = (await lock_jobs(connection, [job_id])).get(job_id)
    if job is None:
        return None
    if job.state in TERMINAL:
        return CancelReply(State(job.state), was_terminal=True)
    if job.state == QUEUED:
        await settle(connection, [queued_canceled(job, reason)], job.now_ms)
        return CancelReply(CANCELED, was_terminal=False, token=job.token)
    if not job.cancel_requested:
        await connection.execute(_SQL["mark"], {"id": job_id, "reason": storable(reason)})
        if connection.keeps_changes:
            attempt, priority = job.failures + job.losses + 1, job.template.priority
            asked = StateChange(job.now_ms, [job_id], RUNNING, RUNNING, attempt, priority, job.worker, reason)
            connection.changed.append(asked)
        await tell(connection, [job_id], is_due=False)
    return CancelReply(RUNNING, was_terminal=False, token=job.token)


def is_repeat(job: LockedJob, token: int, state: int) -> bool:
    """Whether a report with this token was accepted before, and only its response was lost."""
    return token == job.result_token != 0 and (job.state == state or job.state not in TERMINAL)
