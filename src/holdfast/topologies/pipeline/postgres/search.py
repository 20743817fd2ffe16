"""Search: walks along the index of creation times in parts, each of which reads a bounded number of rows.

A cursor names the last row that was read, so no row is returned twice or missed because others are added or deleted.
"""

from typing import Any

from holdfast import limits
from holdfast.core.lifecycle import State
from holdfast.core.listing import Place
from holdfast.errors import InvalidArgumentError
from holdfast.ledger.search import cursor_of, place_of
from holdfast.ports import JobQuery, JobView, SearchPage
from holdfast.postgres.statements import statements
from holdfast.topologies.pipeline.postgres.connections import StoreConnection
from holdfast.topologies.pipeline.postgres.row_values import BIGINT_MAX, searchable, view_of

_SQL = statements(__package__, "jobs")

#: The most rows that one part reads: some tens of milliseconds.
_LOOKS_MAX = 20_000
_NOWHERE = "00000000-0000-0000-0000-000000000000"


class Search:
    """One part of a search."""

    def __init__(self, query: JobQuery, cursor: str, size: int) -> None:
        if size < 1:
            message = f"the size of a part must be at least 1, got {size}"
            raise InvalidArgumentError(message, reason="PAGE_SIZE_INVALID")
        self._query = query
        self._size = min(size, limits.PAGE_SIZE_MAX)
        is_picky = bool(query.queue or query.type or query.labels)
        self._looks = _LOOKS_MAX if is_picky else self._size + 1
        self._after = place_of(query, cursor)

    def _arguments(self) -> dict[str, Any]:
        query = self._query
        at_ms, after = self._after or ((0 if query.oldest_first else BIGINT_MAX), _NOWHERE)
        return {
            "states": sorted(query.states or State),
            "queue": query.queue,
            "type": query.type,
            "labels": searchable(query.labels),
            "from": query.created_from_ms,
            "before": query.created_before_ms or BIGINT_MAX,
            "at": at_ms,
            "after": after,
            "looks": self._looks,
        }

    async def run(self, connection: StoreConnection) -> SearchPage:
        """Returns the jobs that match, and the cursor of the next part."""
        statement = _SQL["scan_oldest" if self._query.oldest_first else "scan_newest"]
        # Not prepared: the best plan depends on the arguments.
        cursor = await connection.execute(statement, self._arguments(), prepare=False, binary=True)
        rows = await cursor.fetchall()
        ids: list[str] = []
        last: Place | None = None
        for seen, (job_id, created_ms, is_match) in enumerate(rows, start=1):
            if is_match:
                ids.append(job_id)
            if len(ids) == self._size or seen == self._looks:
                last = (created_ms, job_id) if seen < len(rows) or seen == self._looks else None
                break
        return SearchPage(await self._views(connection, ids), cursor_of(self._query, last))

    async def _views(self, connection: StoreConnection, ids: list[str]) -> list[JobView]:
        """Returns the jobs in order, without those whose exact labels do not match."""
        if not ids:
            return []
        rows = await (await connection.execute(_SQL["views"], {"ids": ids}, binary=True)).fetchall()
        views = {row[0]: view_of(row) for row in rows}
        labels = set(self._query.labels.items())
        found = [views[job_id] for job_id in ids if job_id in views]
        return [view for view in found if not labels or (view.extra and labels.issubset(view.extra.labels))]
