"""Job listings, which read the index in order of creation, record by record.

Invariants: a cursor names the last job that was read, so jobs that are added or removed cause neither duplicates nor
gaps; one page of a search reads a bounded number of records, and may be short.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection

from holdfast import limits
from holdfast.core.lifecycle import State
from holdfast.core.listing import Place
from holdfast.errors import InvalidArgumentError
from holdfast.ledger.search import cursor_of, place_of
from holdfast.ports import JobQuery, JobView, Page, SearchPage
from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection
from holdfast.topologies.zookeeper.backend.paths import due_of, minute_of
from holdfast.topologies.zookeeper.backend.records import Record, kept_of, view_of

#: Records that are read at a time, and maximum number of records that one page of a search reads.
_READS_AT_A_TIME = 100
_LOOKS_MAX = 2_000

Wants = Callable[[Record], bool]


class NodeListing:
    """Lists jobs by creation time, ids ascending within a millisecond."""

    def __init__(self, connection: EnsembleConnection) -> None:
        self._connection = connection
        self._paths = connection.paths

    async def page(self, states: Collection[State], offset: int, size: int, *, newest_first: bool) -> Page:
        """Returns a page by offset; one more matching job is read to know whether more follow."""
        wanted = frozenset(states)
        query = JobQuery(oldest_first=not newest_first)
        jobs: list[JobView] = []
        skipped = 0
        async for record in self._records(query, None):
            if wanted and record.state not in wanted:
                continue
            if skipped < offset:
                skipped += 1
                continue
            if len(jobs) == size:
                return Page(jobs, has_more=True)
            jobs.append(view_of(record))
        return Page(jobs, has_more=False)

    async def find(self, query: JobQuery, cursor: str, size: int) -> SearchPage:
        """Returns up to `size` matching jobs, from at most `_LOOKS_MAX` records."""
        if size < 1:
            message = f"the size of a part must be at least 1, got {size}"
            raise InvalidArgumentError(message, reason="PAGE_SIZE_INVALID")
        size, after = min(size, limits.PAGE_SIZE_MAX), place_of(query, cursor)
        jobs: list[JobView] = []
        looks = 0
        async for record in self._records(query, after):
            looks += 1
            if _is_wanted(query, record):
                jobs.append(view_of(record))
            if len(jobs) == size or looks == _LOOKS_MAX:
                return SearchPage(jobs, cursor_of(query, (record.created_ms, record.id)))
        return SearchPage(jobs, "")

    async def _records(self, query: JobQuery, after: Place | None) -> AsyncIterator[Record]:
        """Yields the records in the query's time range after this place, in order."""
        self._connection.sync()
        minutes = sorted(await self._connection.children(self._paths.index) or [], reverse=not query.oldest_first)
        for minute in minutes:
            if not _may_hold(query, after, minute):
                continue
            names = await self._connection.children(f"{self._paths.index}/{minute}") or []
            places = [place for place in map(due_of, names) if _covers(query, after, place)]
            places.sort(key=lambda place: ((place[0] if query.oldest_first else -place[0]), place[1]))
            for start in range(0, len(places), _READS_AT_A_TIME):
                part = places[start : start + _READS_AT_A_TIME]
                nodes = await asyncio.gather(*(self._connection.get(self._paths.record(job_id)) for _, job_id in part))
                for node in nodes:
                    if node is not None:
                        yield kept_of(node).record


def _may_hold(query: JobQuery, after: Place | None, minute: str) -> bool:
    if minute < minute_of(query.created_from_ms):
        return False
    if query.created_before_ms and minute > minute_of(query.created_before_ms):
        return False
    if after is None:
        return True
    return minute >= minute_of(after[0]) if query.oldest_first else minute <= minute_of(after[0])


def _covers(query: JobQuery, after: Place | None, place: Place) -> bool:
    at_ms = place[0]
    if at_ms < query.created_from_ms or (query.created_before_ms and at_ms >= query.created_before_ms):
        return False
    if after is None:
        return True
    sign = 1 if query.oldest_first else -1
    return (sign * at_ms, place[1]) > (sign * after[0], after[1])


def _is_wanted(query: JobQuery, record: Record) -> bool:
    template = record.template
    if query.states and record.state not in query.states:
        return False
    if (query.queue and template.queue != query.queue) or (query.type and template.type != query.type):
        return False
    labels = set(query.labels.items())
    return not labels or (record.extra is not None and labels.issubset(record.extra.labels))
