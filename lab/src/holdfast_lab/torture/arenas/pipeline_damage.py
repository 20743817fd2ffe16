"""Queries for damage in the pipeline's database, once every job has ended: each row that they return is damage."""

from collections.abc import Mapping
from typing import LiteralString

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
