"""Attempts that ended well: one statement for all of them, because nothing else of their jobs matters.

Invariants: a row ends here only if it runs under this worker and this token; everything else is judged under its lock.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import DONE, RUNNING
from holdfast.core.outcomes import is_success, success_of
from holdfast.core.state_change import changes
from holdfast.topologies.pipeline.postgres.connections import StoreConnection
from holdfast.topologies.pipeline.postgres.row_values import BIGINT_MAX, possible_ids, storable
from holdfast.topologies.pipeline.postgres.statements import statements

_SQL = statements("leases")["finish"]


def finishable(rows: Sequence[ReportRow]) -> list[ReportRow]:
    """Those that need no judgement: successes under a token, each of a job that is reported once."""
    counts = Counter([row.job_id for row in rows])
    possible = set(possible_ids([row.job_id for row in rows if is_success(row)]))
    return [row for row in rows if row.token and row.job_id in possible and counts[row.job_id] == 1]


async def finish(connection: StoreConnection, worker: str, rows: Sequence[ReportRow]) -> set[str]:
    """Writes down what counts, and says which jobs have ended by that."""
    results = [success_of(row.token, row) for row in rows]
    arguments: dict[str, Any] = {
        "worker": worker,
        "ids": [row.job_id for row in rows],
        "tokens": [result.token for result in results],
        "outputs": [result.output for result in results],
        "summaries": [storable(result.summary) for result in results],
        "runtimes": [max(0, min(result.runtime_ms, BIGINT_MAX)) for result in results],
    }
    cursor = await connection.execute(_SQL, arguments, binary=True)
    ended = await cursor.fetchall()
    if connection.keeps_changes:
        connection.changed += changes(ended, old=RUNNING, new=DONE, worker=worker)
    return {job_id for job_id, *_ in ended}
