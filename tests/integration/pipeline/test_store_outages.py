"""A database that stops, restarts, drops a response or goes silent: no call hangs, and no job is lost or doubled."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest
import uvloop

from holdfast.core.lifecycle import DONE, QUEUED, RUNNING
from holdfast.errors import UnavailableError
from holdfast.ports import JobDraft
from holdfast.process.private_postgres import PrivatePostgres
from holdfast.topologies.pipeline.postgres.database import PostgresStore, open_store
from tests.integration.database_proxy import Way
from tests.integration.pipeline.long_timeouts import HURRY_S, PATIENCE_S, open_patiently, wait_for_connections
from tests.integration.pipeline.store_work import ECHO, ended, insert, report, running, start
from tests.integration.pipeline.wait_until import happens
from tests.postgres import QUICK, require_postgres

T = TypeVar("T")


@pytest.fixture
async def way(database: str, tmp_path: Path) -> AsyncIterator[Way]:
    """A proxy to the database that the test can close."""
    way = Way(database, tmp_path)
    await way.open()
    yield way
    await way.close()


@pytest.fixture
async def far(way: Way) -> AsyncIterator[PostgresStore]:
    """A store that connects through the proxy."""
    async with await open_patiently(way.url) as store:
        yield store


def rows_of(database: str, statement: str) -> list[tuple[object, ...]]:
    """Queries the database directly."""
    with psycopg.connect(database) as connection:
        return connection.execute(statement.encode()).fetchall()


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Repeats a call until it succeeds; each failure must be retryable and have a retry hint."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await ask()
            except UnavailableError as error:
                await asyncio.sleep(float(error.details["retry_after_s"]) / 50)


async def test_lost_answer_to_an_insert_makes_no_second_job(far: PostgresStore, way: Way, database: str) -> None:
    """An insert whose response was lost is repeated with the same id, and its job counts as new."""
    way.lose_answer_to(b"lost on its way")
    made = await far.rows.insert([ECHO], [JobDraft(payload=b"lost on its way")])
    assert way.lost == 1
    assert made.existing == frozenset()
    assert rows_of(database, "SELECT id::text FROM holdfast.jobs") == [(made.job_ids[0],)]
    assert (await far.queues.states())[QUEUED] == 1


async def test_lost_answer_to_a_report_counts_it_once(far: PostgresStore, way: Way, database: str) -> None:
    """A report whose commit got no response counts once."""
    run = await running(far)
    way.lose_answer_to(b"unlucky")
    assert await report(far, run, output=b"unlucky") == ""
    assert way.lost == 1
    assert (await far.rows.result(run.job_id)).output == b"unlucky"
    assert rows_of(database, "SELECT outcome FROM holdfast.executions") == [(DONE,)]
    assert (await far.queues.states())[DONE] == 1


async def test_lost_answer_to_a_start_is_not_repeated(far: PostgresStore, way: Way) -> None:
    """A start whose response was lost is unavailable, and the worker's next session returns the unknown lease."""
    job_id = await insert(far)
    way.lose_answer_to(b"unlucky")
    with pytest.raises(UnavailableError):
        await far.leases.start("unlucky", [job_id], 60_000)
    assert way.lost == 1
    assert (await far.rows.get(job_id)).state == RUNNING
    assert await far.leases.arrive("unlucky", {}, 60_000, session="s") == []
    await start(far, job_id)


async def test_cut_way_heals_by_itself(far: PostgresStore, way: Way) -> None:
    """While the connection is cut every call is unavailable, and afterwards calls succeed again."""
    job_id = await insert(far)
    wait_for_connections(far, HURRY_S)
    await way.close()
    for ask in (far.queues.states, far.cluster_id, far.claims.next_visible_ms, far.workers.all):
        with pytest.raises(UnavailableError):
            await ask()
    with pytest.raises(UnavailableError):
        await anext(far.rows.changes())
    await way.open()
    assert (await patiently(lambda: far.rows.get(job_id))).state == QUEUED
    wait_for_connections(far, PATIENCE_S)
    await asyncio.gather(*(insert(far) for _ in range(20)))
    assert (await far.queues.states())[QUEUED] == 21


async def test_call_to_a_silent_database_fails_as_unavailable(store: PostgresStore, way: Way) -> None:
    """A call to a silent database fails as unavailable, and calls succeed when the database responds again."""
    job_id = await insert(store)
    async with await patiently(lambda: open_store(way.url, statement_ms=500)) as far:
        way.is_silent = True
        with pytest.raises(UnavailableError):
            await far.rows.get(job_id)
        way.is_silent = False
        assert (await patiently(lambda: far.rows.get(job_id))).id == job_id


async def test_terminated_connections_are_replaced(store: PostgresStore, database: str) -> None:
    """Repeatable calls succeed after an administrator has terminated every connection."""
    await asyncio.gather(*(insert(store) for _ in range(20)))
    ended_connections = rows_of(
        database,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    assert ended_connections
    await asyncio.gather(*(insert(store) for _ in range(20)))
    assert (await store.queues.states())[QUEUED] == 40


async def test_deaf_listener_is_told(store: PostgresStore, database: str) -> None:
    """A listener for changes gets an error when its connection ends."""
    changes = store.rows.changes()
    assert await anext(changes) == frozenset()
    await insert(store)
    rows_of(database, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
    with pytest.raises(UnavailableError):
        await anext(changes)


async def test_long_statement_is_given_up(store: PostgresStore, database: str) -> None:
    """A statement that waits too long for a lock fails as unavailable."""
    job_id = await insert(store)
    async with await patiently(lambda: open_store(database, statement_ms=200)) as quick:
        with psycopg.connect(database) as connection:
            connection.execute("SELECT FROM holdfast.jobs FOR UPDATE")
            with pytest.raises(UnavailableError):
                await quick.rows.cancel(job_id, "")
        assert (await patiently(lambda: quick.rows.get(job_id))).state == QUEUED
    assert (await store.rows.cancel(job_id, "")).was_terminal is False


async def test_exhausted_pool_is_unavailable(database: str) -> None:
    """A caller that finds no free connection in the pool gets UNAVAILABLE."""

    async def waiters() -> list[tuple[object, ...]]:
        waits = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        return rows_of(database, waits)

    async with await open_patiently(database, pool_size=1) as store:
        job_id = await insert(store)
        with psycopg.connect(database) as connection:
            connection.execute("SELECT FROM holdfast.jobs FOR UPDATE")
            waiting = asyncio.create_task(store.rows.cancel(job_id, ""))
            await happens(waiters)  # the task that holds the only connection waits for the lock
            wait_for_connections(store, 0.1)
            with pytest.raises(UnavailableError):
                await store.rows.get(job_id)
            assert not waiting.done()
        assert not (await waiting).was_terminal


async def test_crash_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    """After two crashes under load, the database has every job whose submit was answered."""
    require_postgres()
    server = PrivatePostgres(tmp_path / "pg", QUICK)
    try:
        async with await open_store(await asyncio.to_thread(server.start)) as store:
            answered: list[str] = []
            finished: list[str] = []
            news: asyncio.Queue[str] = asyncio.Queue()

            async def load() -> None:
                for _ in range(60):
                    answered.append(await patiently(lambda: insert(store)))
                    news.put_nowait(answered[-1])
                    finished.append(await patiently(lambda: ended(store)))

            tasks = [asyncio.create_task(load()) for _ in range(4)]
            for _ in range(2):
                for _ in range(60):
                    await news.get()
                server.crash()
            await asyncio.gather(*tasks)
            wait_for_connections(store, PATIENCE_S)
            versions = await store.rows.versions(answered)
            assert set(versions) == set(answered)
            assert set(await store.rows.ended(finished)) == set(finished)
            assert (await store.queues.states())[QUEUED] >= len(answered) == 240
    finally:
        await asyncio.to_thread(server.stop)


def test_uvloop_carries_it(database: str) -> None:
    """Rows, transactions and notifications work on uvloop."""

    async def main() -> None:
        async with await open_patiently(database) as store:
            changes = store.rows.changes()
            assert await anext(changes) == frozenset()
            job_id = await ended(store)
            assert await anext(changes) == {job_id}
            await changes.aclose()  # type: ignore[attr-defined]

    uvloop.run(main())
