"""Processes that pause in the middle of a transaction and would block others without limit."""

import asyncio
from collections.abc import Awaitable

import psycopg
import pytest
from psycopg import AsyncConnection

from holdfast.core.lifecycle import DONE
from holdfast.topologies.pipeline.postgres.database import PostgresStore
from tests.integration.pipeline.store_work import report, running
from tests.integration.pipeline.wait_until import happens

LOCK = b"SELECT FROM holdfast.jobs FOR UPDATE"


async def is_locked(database: str) -> bool:
    """Whether a transaction holds locks on the rows."""
    async with await AsyncConnection.connect(database) as connection:
        try:
            await connection.execute(LOCK + b" NOWAIT")
        except psycopg.errors.LockNotAvailable:
            return True
    return False


async def tidy(store: PostgresStore) -> None:
    """Runs a watcher's cleanup repeatedly."""
    while True:
        await store.claims.expire(10)
        await asyncio.sleep(0.05)


async def stand_still(database: str, meanwhile: Awaitable[None], *, is_synced: bool) -> None:
    """Locks every row, within a batch or after it, waits, and then finds its connection terminated."""
    still = await AsyncConnection.connect(database, application_name="holdfast worker still", autocommit=True)
    async with still, still.pipeline() as pipeline, still.transaction():
        await still.execute(LOCK)
        if is_synced:
            await pipeline.sync()
        await happens(lambda: is_locked(database))
        await meanwhile


@pytest.mark.parametrize("is_synced", [False, True])
async def test_process_paused_in_its_transaction_is_cut_off(
    store: PostgresStore, database: str, *, is_synced: bool
) -> None:
    """A report waits only for a moment for a process that paused in its transaction."""
    run = await running(store)

    async def meanwhile() -> None:
        tidying = asyncio.create_task(tidy(store))
        assert await report(store, run) == ""
        tidying.cancel()

    with pytest.raises(psycopg.OperationalError):
        await stand_still(database, meanwhile(), is_synced=is_synced)
    assert (await store.rows.get(run.job_id)).state == DONE


async def test_others_of_the_server_are_left_alone(store: PostgresStore, database: str) -> None:
    """A paused transaction of a program with another application name is not terminated."""
    async with await AsyncConnection.connect(database, application_name="psql") as guest:
        await guest.execute(b"SELECT 1")
        still = await AsyncConnection.connect(database, application_name="holdfast still")
        await still.execute(b"SELECT 1")
        tidying = asyncio.create_task(tidy(store))
        async with await AsyncConnection.connect(database, autocommit=True) as looking:

            async def names() -> set[str]:
                found = await looking.execute(
                    "SELECT application_name FROM pg_stat_activity WHERE xact_start IS NOT NULL"
                )
                return {row[0] for row in await found.fetchall()}

            await happens(names, lambda found: "holdfast still" not in found)
        tidying.cancel()
        await guest.execute(b"SELECT 1")
    with pytest.raises(psycopg.OperationalError):
        await still.execute(b"SELECT 1")
