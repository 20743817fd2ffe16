"""Concurrent calls: exactly one of them wins, and both get a true response."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress

import psycopg
import pytest

from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED, RUNNING
from holdfast.core.model import Extra, QueueMode, Template
from holdfast.errors import NotFoundError
from holdfast.ports import JobDraft
from holdfast.topologies.pipeline.postgres.connections import StoreConnection
from holdfast.topologies.pipeline.postgres.database import PostgresStore
from tests.integration.pipeline.long_timeouts import open_patiently
from tests.integration.pipeline.store_work import ECHO, ECHOES, claim, insert, report, running

ROUNDS = 15


@pytest.fixture
async def rival(database: str) -> AsyncIterator[PostgresStore]:
    """Another process over the same database."""
    async with await open_patiently(database) as rival:
        yield rival


async def test_watchers_never_claim_the_same_row(store: PostgresStore, rival: PostgresStore) -> None:
    """Concurrent watchers claim every visible row once."""
    made = await store.rows.insert([ECHO], [JobDraft() for _ in range(600)])

    async def watch(one: PostgresStore) -> list[str]:
        ids: list[str] = []
        while tickets := await claim(one, count=20):
            ids += [ticket.job_id for ticket in tickets]
        return ids

    parts = await asyncio.gather(*(watch(one) for one in (store, rival, store, rival)))
    claimed = [job_id for part in parts for job_id in part]
    claimed += [ticket.job_id for ticket in await claim(store, count=1_000)]
    assert Counter(claimed) == Counter(made.job_ids)


async def test_only_one_worker_starts_a_job(store: PostgresStore, rival: PostgresStore) -> None:
    """A job with two tickets is started once."""
    made = await store.rows.insert([ECHO], [JobDraft() for _ in range(300)])
    parts = await asyncio.gather(
        *(
            one.leases.start(f"w{at}", made.job_ids[::step], 60_000)
            for at, (one, step) in enumerate(((store, 1), (rival, -1), (store, -1), (rival, 1)))
        )
    )
    runs = [run for part in parts for run in part]
    assert sorted(run.job_id for run in runs) == sorted(made.job_ids)
    assert len({run.token for run in runs}) == 300


async def test_cancel_and_start_exclude_each_other(store: PostgresStore, rival: PostgresStore) -> None:
    """A job is either canceled and never started, or started and marked with a cancel request."""
    for _ in range(ROUNDS):
        job_id = await insert(store)
        reply, runs = await asyncio.gather(store.rows.cancel(job_id, ""), rival.leases.start("w", [job_id], 60_000))
        view = await store.rows.get(job_id)
        if runs:
            assert (reply.state, view.state, view.cancel_requested) == (RUNNING, RUNNING, True)
        else:
            assert (reply.state, view.state) == (CANCELED, CANCELED)


async def test_report_and_expiry_exclude_each_other(store: PostgresStore, rival: PostgresStore) -> None:
    """Either a report counts or the lease expires, never both."""
    for _ in range(ROUNDS):
        run = await running(store, lease_ms=0)
        reason, expired = await asyncio.gather(report(store, run), rival.claims.expire(10))
        view = await store.rows.get(run.job_id)
        assert (reason, expired, view.state) in {("", 0, DONE), ("STALE_TOKEN", 1, QUEUED)}


async def test_same_report_at_the_same_time_counts_once(store: PostgresStore, rival: PostgresStore) -> None:
    """Two equal reports at the same time are both accepted, and the job has one attempt."""
    for _ in range(ROUNDS):
        run = await running(store, Template("echo", max_attempts=3))
        assert {*await asyncio.gather(report(store, run, FAILED), report(rival, run, FAILED))} == {""}
        assert (await store.rows.get(run.job_id)).failures == 1


async def test_one_key_makes_one_job(store: PostgresStore, rival: PostgresStore) -> None:
    """Concurrent submits with one request id, from several processes, return one job."""
    for number in range(ROUNDS):
        drafts = [JobDraft(extra=Extra(f"r{number}")), JobDraft(extra=Extra(unique_key=f"u{number}"))]
        made = await asyncio.gather(*(one.rows.insert([ECHO], drafts) for one in (store, rival, store, rival)))
        assert len({tuple(one.job_ids) for one in made}) == 1
        assert sum(len(one.existing) for one in made) == 6
    assert (await store.queues.states())[QUEUED] == 2 * ROUNDS


async def test_other_payload_under_one_key_is_refused(store: PostgresStore, rival: PostgresStore) -> None:
    """Of two different concurrent submits with one request id, one creates a job and the other is refused."""
    for number in range(ROUNDS):
        made = await asyncio.gather(
            *(
                one.rows.insert([ECHO], [JobDraft(payload=payload, extra=Extra(f"r{number}"))])
                for one, payload in ((store, b"a"), (rival, b"b"))
            )
        )
        assert sorted(refusal.reason for one in made for refusal in one.refusals.values()) == ["REQUEST_ID_REUSED"]


async def test_freed_unique_key_is_taken_once(store: PostgresStore, rival: PostgresStore) -> None:
    """While jobs with a unique key end and others are submitted, at most one of them is unfinished."""
    for _ in range(ROUNDS):
        job_id = await insert(store, unique_key="k")
        _, *ids = await asyncio.gather(
            store.rows.cancel(job_id, ""), insert(rival, unique_key="k"), insert(store, unique_key="k")
        )
        live = {one for one in ids if (await store.rows.get(one)).state == QUEUED}
        assert len(live) <= 1
        for one in live:
            await store.rows.cancel(one, "")


async def test_opposite_orders_do_not_lock_each_other_out(store: PostgresStore, rival: PostgresStore) -> None:
    """Concurrent batches over the same rows in opposite orders all succeed."""
    made = await store.rows.insert([ECHO], [JobDraft() for _ in range(100)])
    runs = await store.leases.start("w", made.job_ids, 60_000)
    rows = [ReportRow(run.job_id, run.token, DONE) for run in runs]
    tokens = [run.token for run in runs]
    answers = await asyncio.gather(
        store.leases.report("w", rows),
        rival.leases.report("w", rows[::-1]),
        store.leases.extend("w", tokens, 90_000),
        rival.leases.extend("w", tokens[::-1], 30_000),
        rival.claims.expire(100),
    )
    assert answers[0] == answers[1] == [""] * 100


async def test_deadlock_is_tried_again(store: PostgresStore) -> None:
    """A transaction that the database aborts for a deadlock is repeated without an error for the caller."""
    first, second = await insert(store), await insert(store)
    meet = asyncio.Barrier(2)
    tries: Counter[str] = Counter()

    async def change(one: str, other: str) -> None:
        async def work(connection: StoreConnection) -> None:
            tries[one] += 1
            statement = b"UPDATE holdfast.jobs SET version = version + 1 WHERE id = %s::uuid"
            await (await connection.execute(statement + b" RETURNING 1", (one,))).fetchone()
            if tries[one] == 1:
                await meet.wait()
            await (await connection.execute(statement + b" RETURNING 1", (other,))).fetchone()

        await store.database.transact(work)

    await asyncio.gather(change(first, second), change(second, first))
    assert max(tries.values()) > 1
    assert set((await store.rows.versions([first, second])).values()) == {3}


async def test_pause_against_start(store: PostgresStore, rival: PostgresStore) -> None:
    """After a pause has returned, no job of the queue is started."""
    for _ in range(ROUNDS):
        job_id = await insert(store)
        await asyncio.gather(
            store.queues.set_mode("default", QueueMode.PAUSED, ""), rival.leases.start("w", [job_id], 60_000)
        )
        other = await insert(store)
        assert await rival.leases.start("w", [other], 60_000) == []
        assert await rival.claims.claim(10, 60_000, ECHOES, []) == []
        await store.queues.set_mode("default", QueueMode.OPEN, "")


async def test_counts_survive_every_race(store: PostgresStore, rival: PostgresStore, database: str) -> None:
    """After many kinds of concurrent calls, the counts match the rows."""
    made = await store.rows.insert([Template("echo", max_attempts=2)], [JobDraft() for _ in range(120)])

    async def storm(one: PostgresStore, worker: str) -> None:
        for step in range(8):
            runs = await one.leases.start(worker, made.job_ids[step::3], 0 if step % 2 else 60_000)
            rows = [ReportRow(run.job_id, run.token, FAILED if run.token % 3 else DONE) for run in runs[:5]]
            await one.leases.report(worker, rows)
            await one.leases.release(worker, [run.token for run in runs[5:8]], is_spent=True)
            with suppress(NotFoundError):  # it may have ended and been deleted
                await one.rows.cancel(made.job_ids[step * 7], "")
            await one.claims.expire(20)
            await one.claims.retire(5, retain_ms=0, retain_failed_ms=0)

    await asyncio.gather(storm(store, "a"), storm(rival, "b"), storm(store, "c"))
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT state, count(*) FROM holdfast.jobs GROUP BY state").fetchall()
        twice = connection.execute(
            "SELECT count(*) FROM holdfast.completed c JOIN holdfast.failed f ON f.job_id = c.job_id"
        ).fetchall()
    assert {state: count for state, count in (await store.queues.states()).items() if count} == dict(rows)
    assert twice == [(0,)]
