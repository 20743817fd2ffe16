"""The schema: created once by the first process, and never changed unnoticed."""

import asyncio
import re

import psycopg
import pytest

from holdfast.core.lifecycle import State
from holdfast.core.model import QueueMode
from holdfast.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from holdfast.postgres.migrator import Migration, migrate, read_migrations
from holdfast.topologies.pipeline.postgres.database import open_store
from tests.integration.pipeline.long_timeouts import open_patiently

PIPELINE = "holdfast.topologies.pipeline.postgres"


async def test_many_may_start_at_once(bare_database: str) -> None:
    """Several processes that find an empty database create its schema once and agree on the cluster's id."""
    stores = await asyncio.gather(*(open_patiently(bare_database, pool_size=2) for _ in range(5)))
    names = {await store.cluster_id() for store in stores}
    for store in stores:
        await store.close()
    assert len(names) == 1
    async with await open_patiently(bare_database) as again:
        assert await again.cluster_id() in names
    with psycopg.connect(bare_database) as connection:
        rows = connection.execute("SELECT version, name FROM holdfast.migrations ORDER BY version").fetchall()
    assert rows == [(migration.version, migration.name) for migration in read_migrations(PIPELINE)]


async def test_old_database_is_upgraded_and_tells_the_history_of_old_jobs(bare_database: str) -> None:
    """After an upgrade, the history shows attempts of older jobs with worker, times, outcome and reason."""
    old = [migration for migration in read_migrations(PIPELINE) if migration.version < 5]
    job_id = "00000000-0000-4000-8000-000000000001"
    with psycopg.connect(bare_database, autocommit=True) as connection:
        migrate(connection, old)
        connection.execute(
            """
            INSERT INTO holdfast.jobs (
                id, created_ms, visible_ms, started_ms, finished_ms, token, result_token, state, priority, max_attempts,
                max_losses, backoff_kind, simulated, timeout_ms, backoff_base_ms, backoff_max_ms,
                queue, type, route, payload
            ) VALUES (%s, 1, 1, 5, 9, 2, 2, 4, 5, 2, 3, 1, false, 0, 0, 0, 'default', 'echo', 'echo', '')""",
            (job_id,),
        )
        for token, start_ms, outcome, reason in ((1, 2, 1, "first"), (2, 5, 4, "second")):
            connection.execute(
                """
                INSERT INTO holdfast.executions (job_id, token, worker, started_ms, ended_ms, outcome, reason)
                VALUES (%s, %s, 'w', %s, %s, %s, %s)""",
                (job_id, token, start_ms, start_ms + 1, outcome, reason),
            )
        connection.execute("INSERT INTO holdfast.failed VALUES (%s, 9, 0, 4, 'second', 'it broke', '')", (job_id,))
    async with await open_patiently(bare_database) as store:
        told = [(entry.at_ms, entry.what, entry.worker, entry.reason) for entry in await store.rows.history(job_id)]
    assert told == [
        (1, "submitted", "", "type echo, queue default, priority 5"),
        (2, "granted", "w", ""),
        (3, "to be retried", "w", "first"),
        (5, "granted", "w", ""),
        (6, "finished", "w", "second: it broke"),
    ]


def test_changed_migration_is_refused(bare_database: str) -> None:
    """A start fails and changes nothing if the text of an applied migration has changed."""
    with psycopg.connect(bare_database, autocommit=True) as connection:
        assert migrate(connection, [Migration(1, "0001_a.sql", "CREATE TABLE a ()")]) == ["0001_a.sql"]
        changed = [Migration(1, "0001_a.sql", "CREATE TABLE a (b int)"), Migration(2, "0002_b.sql", "SELECT 1")]
        with pytest.raises(FailedPreconditionError, match=r"another text of 0001_a\.sql") as refused:
            migrate(connection, changed)
        assert refused.value.reason == "SCHEMA_CHANGED"
        rows = connection.execute("SELECT version FROM holdfast.migrations")
        assert rows.fetchall() == [(1,)]


def test_newer_schema_is_refused(bare_database: str) -> None:
    """A program refuses a database that a newer version has migrated, and changes nothing."""
    with psycopg.connect(bare_database, autocommit=True) as connection:
        known = [Migration(1, "0001_a.sql", "CREATE TABLE a ()"), Migration(2, "0002_b.sql", "CREATE TABLE b ()")]
        migrate(connection, known)
        with pytest.raises(FailedPreconditionError, match=r"0002_b\.sql.*newer holdfast") as refused:
            migrate(connection, known[:1])
        assert refused.value.reason == "SCHEMA_TOO_NEW"


def test_failing_migration_leaves_nothing(bare_database: str) -> None:
    """Migrations that are applied together take effect together or not at all."""
    with psycopg.connect(bare_database, autocommit=True) as connection:
        bad = [Migration(1, "0001_a.sql", "CREATE TABLE a ()"), Migration(2, "0002_b.sql", "CREATE TABL")]
        with pytest.raises(psycopg.errors.SyntaxError):
            migrate(connection, bad)
        rows = connection.execute("SELECT to_regclass('a'), to_regclass('holdfast.migrations')")
        assert rows.fetchall() == [(None, None)]


async def test_bad_urls_are_told_apart(bare_database: str) -> None:
    """A malformed URL is an invalid argument, and a database that does not answer is unavailable."""
    with pytest.raises(InvalidArgumentError, match="the database must be a URL"):
        await open_store("nonsense")
    with pytest.raises(UnavailableError) as refused:
        await open_store(bare_database.replace("/t", "/not_there_t"))
    assert refused.value.reason == "DATABASE_UNAVAILABLE"
    assert refused.value.details == {"retry_after_s": "1"}


def test_numbers_of_the_schema_are_those_of_the_code() -> None:
    """The schema's comments give states and modes the same numbers as the code."""
    said = {
        name: int(number) for number, name in re.findall(r"\b(\d) ([A-Z]{4,})\b", read_migrations(PIPELINE)[0].text)
    }
    closed = {mode.name: mode.value for mode in QueueMode if mode is not QueueMode.OPEN}
    assert said == {**{state.name: state.value for state in State}, **closed}
