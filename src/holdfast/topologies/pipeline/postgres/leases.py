"""`LeaseStore` on PostgreSQL: leases and outcomes."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from holdfast.core.commands import Heard, ReportRow
from holdfast.core.lifecycle import DONE, QUEUED, RUNNING, TERMINAL
from holdfast.core.model import Extra
from holdfast.core.outcomes import is_success, result_of, success_of
from holdfast.core.state_change import changes
from holdfast.ports import Assignment
from holdfast.postgres.statements import statements
from holdfast.topologies.pipeline.postgres.connections import Database, StoreConnection
from holdfast.topologies.pipeline.postgres.notifier import StoreNotifier
from holdfast.topologies.pipeline.postgres.outcomes import (
    LockedJob,
    Outcome,
    is_repeat,
    lock_held,
    lock_jobs,
    reported,
    revoked,
    settle,
)
from holdfast.topologies.pipeline.postgres.row_values import BIGINT_MAX, Row, extra_of, possible_ids, storable

_SQL = statements(__package__, "leases")
_NO_EXTRA = Extra()
#: Columns of the statement `start`.
_ATTEMPT, _PRIORITY, _STARTED_MS = 4, 10, 11


class PostgresLeaseStore:
    """The store operations of workers."""

    def __init__(self, database: Database, teller: StoreNotifier) -> None:
        self._database, self._teller = database, teller

    async def arrive(
        self, worker: str, held: Mapping[int, str], lease_ms: int, *, session: str, is_spent: bool = True
    ) -> list[int]:
        """With `is_spent`, each lease that is taken back counts as a loss: its job may have ended the worker."""

        async def work(connection: StoreConnection) -> list[int]:
            await connection.execute(_SQL["begin_session"], {"worker": worker, "session": session})
            jobs = await lock_held(connection, worker)
            kept = [job.token for job in jobs if held.get(job.token) == job.id]
            lost = [job for job in jobs if job.token not in kept]
            if kept:
                await connection.execute(_SQL["keep"], {"worker": worker, "tokens": kept, "lease_ms": lease_ms})
            if lost:
                outcomes = [revoked(job, "disconnected", is_spent=is_spent) for job in lost]
                await settle(connection, outcomes, lost[0].now_ms)
            return sorted(kept)

        return await self._database.transact(work)

    async def start(self, worker: str, job_ids: Collection[str], lease_ms: int) -> list[Assignment]:
        """Grants the jobs in one statement; durable when it returns."""
        arguments: dict[str, Any] = {"ids": possible_ids(list(job_ids)), "worker": worker, "lease_ms": lease_ms}

        async def ask(connection: StoreConnection) -> list[Assignment]:
            cursor = await connection.execute(_SQL["start"], arguments, binary=True)
            rows = await cursor.fetchall()
            if connection.keeps_changes:
                marks = [(row[1], row[_STARTED_MS], row[_ATTEMPT], row[_PRIORITY]) for row in rows]
                connection.changed += changes(marks, old=QUEUED, new=RUNNING, worker=worker)
            return [_assignment(row) for row in rows]

        # Not repeatable: a second try would not find the rows that the first one has started.
        runs = await self._database.ask(ask, is_repeatable=False)
        if runs:
            # The notification may wait: a short job has ended by then, and one notification covers both.
            self._teller.tell((run.job_id for run in runs), may_wait=True)
        return runs

    async def extend(self, worker: str, tokens: Collection[int], lease_ms: int) -> Heard:
        """Extends leases, also expired ones that were not taken back yet."""
        arguments: dict[str, Any] = {"worker": worker, "tokens": list(tokens), "lease_ms": lease_ms}

        async def ask(connection: StoreConnection) -> Heard:
            rows = await (await connection.execute(_SQL["extend"], arguments, binary=True)).fetchall()
            return Heard([token for token, _ in rows], [token for token, is_canceled in rows if is_canceled])

        return await self._database.ask(ask)

    async def live(self, worker: str, session: str) -> None:
        """Updates the place of this session; does nothing if it has none."""

        async def ask(connection: StoreConnection) -> None:
            await connection.execute(_SQL["live"], {"worker": worker, "session": session})

        await self._database.ask(ask)

    async def report(self, worker: str, rows: Sequence[ReportRow]) -> list[str]:
        """Finishes successes in one statement, and decides the other rows in one transaction."""
        done = finishable(rows)
        finished: set[str] = set()
        if done:
            # A repeated statement finds its rows ended; `_judge` then accepts them as repeated reports.
            finished = await self._database.ask(lambda connection: finish(connection, worker, done))
            self._teller.tell(finished)
        left = [row for row in rows if row.job_id not in finished]
        reasons = iter(await self._judge(worker, left) if left else ())
        return ["" if row.job_id in finished else next(reasons) for row in rows]

    async def _judge(self, worker: str, rows: Sequence[ReportRow]) -> list[str]:
        """Decides reports by the rules of the core, under the locks of their rows."""
        ids = possible_ids([row.job_id for row in rows])

        async def work(connection: StoreConnection) -> tuple[dict[str, Outcome], list[str]]:
            jobs = await lock_jobs(connection, ids)
            outcomes, refused = _judged(worker, rows, jobs)
            if outcomes:
                now_ms = next(iter(jobs.values())).now_ms
                await settle(connection, list(outcomes.values()), now_ms, tells=False)
            return outcomes, refused

        outcomes, refused = await self._database.transact(work)
        if outcomes:
            is_due = any(outcome.result.state == QUEUED for outcome in outcomes.values())
            self._teller.tell(outcomes, is_due=is_due)
        return refused

    async def release(self, worker: str, tokens: Collection[int], *, is_spent: bool) -> None:
        """Returns the jobs of leases that the worker still holds; others are ignored."""
        why = "disconnected" if is_spent else "released"

        async def work(connection: StoreConnection) -> None:
            jobs = [job for job in await lock_held(connection, worker) if job.token in tokens]
            if jobs:
                outcomes = [revoked(job, why, is_spent=is_spent) for job in jobs]
                await settle(connection, outcomes, jobs[0].now_ms)

        await self._database.transact(work)


def _assignment(row: Row) -> Assignment:
    token, job_id, type_, payload, attempt, timeout_ms, simulated, packed, queue, retries_left, *_ = row
    extra = extra_of(packed) or _NO_EXTRA
    return Assignment(
        token,
        job_id,
        type_,
        bytes(payload),
        attempt,
        timeout_ms,
        simulated,
        extra.work_duration_ms,
        extra.payload_size_bytes,
        dict(extra.labels),
        dict(extra.headers),
        queue,
        retries_left,
    )


def _judged(
    worker: str, rows: Sequence[ReportRow], jobs: Mapping[str, LockedJob]
) -> tuple[dict[str, Outcome], list[str]]:
    """Returns the outcomes to write, by job, and for each row the reason if it is refused."""
    outcomes: dict[str, Outcome] = {}
    refused: list[str] = []
    for row in rows:
        job = jobs.get(row.job_id)
        reason = "UNKNOWN_JOB" if job is None else _refusal(worker, row, job, outcomes.get(row.job_id))
        # A repeated report is accepted again, and does not affect the attempt that runs by now.
        if job is not None and not reason and row.job_id not in outcomes and _is_current(row, job):
            outcomes[row.job_id] = reported(job, result_of(job, job.token, row, job.now_ms))
        refused.append(reason)
    return outcomes, refused


def _is_current(row: ReportRow, job: LockedJob) -> bool:
    """Whether the report is about the running attempt."""
    return job.state == RUNNING and row.token in {0, job.token}


def _refusal(worker: str, row: ReportRow, job: LockedJob, earlier: Outcome | None) -> str:
    """Returns why a report is refused; empty if it is accepted, or was accepted before."""
    if _is_current(row, job):
        if job.worker != worker:
            return "NOT_THE_HOLDER"
        if earlier is None:
            return ""
        if earlier.result.state not in TERMINAL:
            return "STALE_TOKEN"
        return "" if row.token and row.state == earlier.result.state else "ALREADY_FINISHED"
    if is_repeat(job, row.token, row.state):
        return ""
    return "ALREADY_FINISHED" if job.state in TERMINAL else "STALE_TOKEN"


def finishable(rows: Sequence[ReportRow]) -> list[ReportRow]:
    """Returns the rows that one statement can finish: successes under a token, each of a job that is reported once."""
    counts = Counter([row.job_id for row in rows])
    possible = set(possible_ids([row.job_id for row in rows if is_success(row)]))
    return [row for row in rows if row.token and row.job_id in possible and counts[row.job_id] == 1]


async def finish(connection: StoreConnection, worker: str, rows: Sequence[ReportRow]) -> set[str]:
    """Ends jobs with one statement, and returns the ids of those that it ended.

    Invariant: a row ends here only if it runs under this worker and this token; every other row is judged under its
    lock.
    """
    results = [success_of(row.token, row) for row in rows]
    arguments: dict[str, Any] = {
        "worker": worker,
        "ids": [row.job_id for row in rows],
        "tokens": [result.token for result in results],
        "outputs": [result.output for result in results],
        "summaries": [storable(result.summary) for result in results],
        "runtimes": [max(0, min(result.runtime_ms, BIGINT_MAX)) for result in results],
    }
    cursor = await connection.execute(_SQL["finish"], arguments, binary=True)
    ended = await cursor.fetchall()
    if connection.keeps_changes:
        connection.changed += changes(ended, old=RUNNING, new=DONE, worker=worker)
    return {job_id for job_id, *_ in ended}
