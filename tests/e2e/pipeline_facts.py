"""What the database of the pipeline itself says, by SQL."""

import contextlib
from collections import Counter
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg

from tests.e2e.waiting import eventually

#: Each finds what must not be, once every job has ended.
BROKEN: dict[str, LiteralString] = {
    "a job that has not ended": "SELECT id::text, state FROM holdfast.jobs WHERE state < 3",
    "a result without its job": """
        SELECT r.job_id::text FROM
            (SELECT job_id, 3 AS state FROM holdfast.completed UNION ALL SELECT job_id, state FROM holdfast.failed) r
        LEFT JOIN holdfast.jobs j ON j.id = r.job_id AND j.state = r.state WHERE j.id IS NULL""",
    "a job without its one result": """
        SELECT j.id::text FROM holdfast.jobs j WHERE 1 <>
            (SELECT count(*) FROM holdfast.completed c WHERE c.job_id = j.id)
            + (SELECT count(*) FROM holdfast.failed f WHERE f.job_id = j.id)""",
    "as many attempts have ended as were begun": """
        SELECT j.id::text, j.grants, count(e.job_id) FROM holdfast.jobs j
        LEFT JOIN holdfast.executions e ON e.job_id = j.id GROUP BY j.id HAVING j.grants <> count(e.job_id)""",
    "an end that is not that of the last attempt": """
        SELECT e.job_id::text, e.token, j.token FROM holdfast.executions e JOIN holdfast.jobs j ON j.id = e.job_id
        WHERE (e.outcome > 2 AND (e.token <> j.token OR e.outcome <> j.state)) OR e.token > j.token""",
    "a job that ended twice": """
        SELECT job_id::text FROM holdfast.executions WHERE outcome > 2 GROUP BY job_id HAVING count(*) > 1""",
    "a result that no attempt has": """
        SELECT j.id::text FROM holdfast.jobs j WHERE j.result_token > 0 AND NOT EXISTS
            (SELECT FROM holdfast.executions e
            WHERE e.job_id = j.id AND e.token = j.result_token AND e.outcome = j.state)""",
    "a token that two attempts had": """
        SELECT token FROM holdfast.executions GROUP BY token HAVING count(*) > 1""",
    "attempts of one job at the same time": """
        SELECT a.job_id::text FROM holdfast.executions a JOIN holdfast.executions b
        ON a.job_id = b.job_id AND a.token < b.token AND b.started_ms < a.ended_ms""",
    "an attempt before its time": """
        SELECT e.job_id::text FROM holdfast.executions e JOIN holdfast.jobs j ON j.id = e.job_id
        WHERE e.started_ms < j.created_ms OR (e.outcome > 2 AND e.started_ms < j.not_before_ms)""",
    "counts that are not those of jobs": """
        SELECT queue, state, sum(jobs) FROM (
            SELECT queue, state, jobs FROM holdfast.tallies
            UNION ALL SELECT queue, state, -1 FROM holdfast.jobs
        ) t GROUP BY 1, 2 HAVING sum(jobs) <> 0""",
    "a tick without its job": """
        SELECT t.tick_ms, t.outcome FROM holdfast.ticks t LEFT JOIN holdfast.jobs j ON j.id = t.job_id
        WHERE t.outcome <> 'fired' OR j.id IS NULL""",
    "a tick whose epoch is older than that of the tick before it": """
        SELECT tick_ms FROM (
            SELECT tick_ms, epoch, lag(epoch) OVER (PARTITION BY schedule_id ORDER BY tick_ms) AS before
            FROM holdfast.ticks
        ) t WHERE epoch < before""",
}


@dataclass(frozen=True)
class Row:
    """One job."""

    job_id: str
    #: By its submitter; empty: a tick made it.
    name: str
    type: str
    state: int
    reason: str
    attempts: int


class Facts:
    """A connection that is made again after each outage."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def ask(self, statement: LiteralString) -> list[tuple[Any, ...]]:
        """The rows; a database that is away is waited for."""
        return eventually(lambda: self._try(statement), lambda rows: rows is not None, what="the database") or []

    def _try(self, statement: LiteralString) -> list[tuple[Any, ...]] | None:
        try:
            if self._connection is None:
                self._connection = psycopg.connect(self._url, autocommit=True, connect_timeout=5)
            return self._connection.execute(statement).fetchall()
        except psycopg.OperationalError:
            self.close()
            return None

    def is_there(self) -> bool:
        """Whether it answers."""
        return self._try("SELECT 1") is not None

    def cut_others(self) -> None:
        """Ends every connection but this one, and this one, too: there may be no way back now."""
        with contextlib.suppress(psycopg.OperationalError):
            assert self._connection is not None
            self._connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            )
        self.close()

    # -- on the way

    def ticked(self) -> int:
        """How many ticks there were."""
        return int(self.ask("SELECT count(*) FROM holdfast.ticks")[0][0])

    def ended(self) -> int:
        """How many attempts have ended."""
        return int(self.ask("SELECT count(*) FROM holdfast.executions")[0][0])

    def unfinished(self) -> int:
        """How many jobs have not ended."""
        return int(self.ask("SELECT count(*) FROM holdfast.jobs WHERE state < 3")[0][0])

    def leader(self) -> str:
        """Who fires schedules; empty if nobody may."""
        rows = self.ask("SELECT holder FROM holdfast.leaders WHERE lease_until_ms > holdfast.now_ms()")
        return str(rows[0][0]) if rows else ""

    def epoch(self) -> int:
        """How often the leadership has changed hands."""
        return int(self.ask("SELECT epoch FROM holdfast.leaders")[0][0])

    # -- in the end

    def jobs(self) -> list[Row]:
        """All of them."""
        rows = self.ask("""
            SELECT
                j.id::text, coalesce(j.labels->>'name', ''), j.type, j.state, coalesce(f.failure_reason, ''), j.grants
            FROM holdfast.jobs j LEFT JOIN holdfast.failed f ON f.job_id = j.id""")
        return [Row(*row) for row in rows]

    def attempts(self) -> set[tuple[str, int]]:
        """Job and token of each that has ended."""
        return {(job_id, token) for job_id, token in self.ask("SELECT job_id::text, token FROM holdfast.executions")}

    def past(self, job_ids: set[str]) -> list[tuple[Any, ...]]:
        """Every attempt of these jobs, as they ended."""
        rows = self.ask(
            "SELECT job_id::text, token, worker, started_ms, ended_ms, outcome, reason FROM holdfast.executions"
        )
        return sorted(row for row in rows if row[0] in job_ids)

    def ticks(self) -> dict[int, list[int]]:
        """By schedule, in order."""
        found: dict[int, list[int]] = {}
        for schedule, tick_ms in self.ask("SELECT schedule_id, tick_ms FROM holdfast.ticks ORDER BY 1, 2"):
            found.setdefault(schedule, []).append(tick_ms)
        return found

    def jobs_of_ticks(self) -> Counter[str]:
        """How many ticks name a job."""
        return Counter(row[0] for row in self.ask("SELECT job_id::text FROM holdfast.ticks WHERE job_id IS NOT NULL"))

    def broken(self) -> dict[str, list[tuple[Any, ...]]]:
        """What must not be, and is."""
        return {name: rows for name, statement in BROKEN.items() if (rows := self.ask(statement))}
