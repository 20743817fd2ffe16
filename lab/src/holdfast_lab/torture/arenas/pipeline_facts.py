"""Facts from the pipeline's database, and its damage, by SQL."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, LiteralString

import psycopg

from holdfast.core.model import SCHEDULE, Extra
from holdfast.errors import HoldfastError
from holdfast.process.private_postgres import PrivatePostgres
from holdfast.topologies.pipeline.postgres.row_values import extra_of
from holdfast_lab.history.records import RUNNING, TERMINAL, DamageFact, EndFact, GrantFact, JobFact, Record, TickFact
from holdfast_lab.torture.arenas.job_facts import name_in
from holdfast_lab.torture.jobs import run_of

BROKEN: Mapping[str, LiteralString] = {
    "a result without its job": """
        SELECT r.job_id::text FROM
            (SELECT job_id, 3 AS state FROM holdfast.completed UNION ALL SELECT job_id, state FROM holdfast.failed) r
        LEFT JOIN holdfast.jobs j ON j.id = r.job_id AND j.state = r.state WHERE j.id IS NULL""",
    "a job that has ended without its one result": """
        SELECT j.id::text FROM holdfast.jobs j WHERE j.state > 2 AND 1 <>
            (SELECT count(*) FROM holdfast.completed c WHERE c.job_id = j.id)
            + (SELECT count(*) FROM holdfast.failed f WHERE f.job_id = j.id)""",
    "other attempts have ended than were begun": """
        SELECT j.id::text, j.grants, count(e.job_id) FROM holdfast.jobs j
        LEFT JOIN holdfast.executions e ON e.job_id = j.id
        GROUP BY j.id HAVING j.grants - (j.state = 2)::integer <> count(e.job_id)""",
    "an end that is not that of the last attempt": """
        SELECT e.job_id::text, e.token, j.token FROM holdfast.executions e JOIN holdfast.jobs j ON j.id = e.job_id
        WHERE (e.outcome > 2 AND (e.token <> j.token OR e.outcome <> j.state)) OR e.token > j.token""",
    "a job that ended twice": """
        SELECT job_id::text FROM holdfast.executions WHERE outcome > 2 GROUP BY job_id HAVING count(*) > 1""",
    "a result that no attempt has": """
        SELECT j.id::text FROM holdfast.jobs j WHERE j.result_token > 0 AND j.state > 2 AND NOT EXISTS
            (SELECT FROM holdfast.executions e
            WHERE e.job_id = j.id AND e.token = j.result_token AND e.outcome = j.state)""",
    "a token that two attempts had": """
        SELECT token FROM holdfast.executions GROUP BY token HAVING count(*) > 1""",
    "counts that are not those of jobs": """
        SELECT queue, state, sum(jobs) FROM (
            SELECT queue, state, jobs FROM holdfast.tallies
            UNION ALL SELECT queue, state, -1 FROM holdfast.jobs
        ) t GROUP BY 1, 2 HAVING sum(jobs) <> 0""",
    "a tick without its job": """
        SELECT t.tick_ms, t.outcome FROM holdfast.ticks t LEFT JOIN holdfast.jobs j ON j.id = t.job_id
        WHERE (t.outcome = 'fired') <> (j.id IS NOT NULL)""",
    "a tick whose epoch is older than that of the tick before it": """
        SELECT tick_ms FROM (
            SELECT tick_ms, epoch, lag(epoch) OVER (PARTITION BY schedule_id ORDER BY tick_ms) AS before
            FROM holdfast.ticks
        ) t WHERE epoch < before""",
}

#: Queries that are valid only if the database's clock was never set.
BROKEN_IN_TIME: Mapping[str, LiteralString] = {
    "attempts of one job at the same time": """
        SELECT a.job_id::text FROM holdfast.executions a JOIN holdfast.executions b
        ON a.job_id = b.job_id AND a.token < b.token AND b.started_ms < a.ended_ms""",
    "an attempt before its time": """
        SELECT e.job_id::text FROM holdfast.executions e JOIN holdfast.jobs j ON j.id = e.job_id
        WHERE e.started_ms < j.created_ms OR (e.outcome > 2 AND e.started_ms < j.not_before_ms)""",
}


Row = tuple[Any, ...]

_STORE = "database"
_ROWS_SHOWN = 5
_JOBS: LiteralString = """
    SELECT
        j.id::text, j.state, j.type, j.queue, j.priority, j.number, coalesce(j.request_id, ''), j.not_before_ms,
        j.created_ms, j.grants, j.result_token, j.token, j.extra, coalesce(c.output, ''::bytea), j.started_ms
    FROM holdfast.jobs j LEFT JOIN holdfast.completed c ON c.job_id = j.id ORDER BY j.number"""
_EXECUTIONS: LiteralString = """
    SELECT job_id::text, token, started_ms, outcome FROM holdfast.executions ORDER BY token"""
_UNRUN: LiteralString = """
    SELECT j.id::text, j.state FROM holdfast.jobs j WHERE j.state > 2 AND NOT EXISTS
        (SELECT FROM holdfast.executions e WHERE e.job_id = j.id AND e.outcome > 2)"""
_TICKS: LiteralString = """
    SELECT s.name, t.tick_ms, t.outcome, coalesce(t.job_id::text, ''), s.every_ms, s.missed
    FROM holdfast.ticks t JOIN holdfast.schedules s ON s.id = t.schedule_id ORDER BY 1, 2"""


def read(directory: Path, *, are_times_true: bool) -> list[Record]:
    """Starts the server of a directory, reads all facts, and stops it."""
    server = PrivatePostgres(directory)
    try:
        url = server.start()
    except HoldfastError as error:
        return [DamageFact(f"the database cannot be started: {error.message}")]
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            return list(_facts(connection, are_times_true=are_times_true))
    finally:
        server.stop()


def _facts(connection: psycopg.Connection[Row], *, are_times_true: bool) -> Iterator[Record]:
    jobs = connection.execute(_JOBS).fetchall()
    yield from map(_job, jobs)
    yield from _leases(connection, jobs)
    yield from _ticks(connection.execute(_TICKS).fetchall())
    checks = {**BROKEN, **(BROKEN_IN_TIME if are_times_true else {})}
    for name, statement in checks.items():
        if rows := connection.execute(statement).fetchall():
            yield DamageFact(f"{name}: {len(rows)} rows, such as {rows[:_ROWS_SHOWN]}")


def _job(row: Row) -> JobFact:
    job_id, state, kind, queue, priority, number, key, due_ms, created_ms, grants, token, _, extra, output, _ = row
    said = extra_of(extra) or Extra()
    return JobFact(
        id=job_id,
        name=name_in(said.labels),
        state=state,
        type=kind,
        queue=queue,
        priority=priority,
        number=number,
        store=_STORE,
        key=key,
        not_before_ms=due_ms,
        created_ms=created_ms,
        grants=grants,
        token=token if state in TERMINAL else 0,
        run=run_of(output) if output else "",
        schedule=dict(said.headers).get(SCHEDULE, ""),
        retry_of=said.retry_of,
    )


def _leases(connection: psycopg.Connection[Row], jobs: list[Row]) -> Iterator[Record]:
    """Yields ended attempts, running ones, and ends without an attempt."""
    for job_id, token, started_ms, outcome in connection.execute(_EXECUTIONS).fetchall():
        yield GrantFact(job_id, token, token, _STORE, started_ms)
        if outcome in TERMINAL:
            yield EndFact(job_id, outcome, token)
    for job_id, state, *_, token, _extra, _output, started_ms in jobs:
        if state == RUNNING:
            yield GrantFact(job_id, token, token, _STORE, started_ms)
    for job_id, state in connection.execute(_UNRUN).fetchall():
        yield EndFact(job_id, state)


def _ticks(rows: list[Row]) -> Iterator[Record]:
    """Yields each tick; missing ticks count as passed over if the schedule's `missed` covers them."""
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row[0], []).append(row)
    for name, ticks in by_name.items():
        every_ms, missed = ticks[0][4:6]
        gaps = [(after[1] - before[1]) // every_ms - 1 if every_ms else 0 for before, after in pairwise(ticks)]
        are_counted = sum(gaps) <= missed
        for (_, tick_ms, outcome, job_id, *_), gap in zip(ticks, [0, *gaps], strict=True):
            yield TickFact(name, tick_ms, outcome, job_id, gap if are_counted else 0)
