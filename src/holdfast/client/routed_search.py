"""A search over several nodes, page by page, merged by creation time.

Invariants: each node's own search is read from its beginning without a gap, so no job is missed or returned twice; no
job is returned while another node may still have an earlier one. A cursor contains a place for each node and is valid
for one query only, as the cursor of a node is.
"""

from collections.abc import Callable, Sequence

import msgspec

from holdfast import limits
from holdfast.client.node_set import Node, NodeSet
from holdfast.core.cursors import cursor_at, place_in
from holdfast.errors import InvalidArgumentError
from holdfast.ports import JobQuery, JobView, SearchPage

#: After this many pages of a node without a match, the caller gets a cursor to continue with.
_LOOKS_MAX = 50

Key = Callable[[JobView], tuple[int, str]]


class _NodeMatches(msgspec.Struct, frozen=True):
    """The next matches of one node after a place."""

    node: Node
    place: str
    jobs: list[JobView]
    after: str

    async def taken(self, query: JobQuery, count: int) -> tuple[list[JobView], str | None]:
        """Returns the first `count` of these jobs, and the node's place directly after them; None at its end."""
        if count == len(self.jobs):
            return self.jobs, self.after or None
        if count == 0:
            return [], self.place
        found = await self.node.jobs.find(query, self.place, count)
        return found.jobs, found.cursor or None


async def find(nodes: NodeSet, query: JobQuery, cursor: str, size: int) -> SearchPage:
    """Returns the next jobs of all nodes, with the nodes' own (inner) tokens."""
    if size < 1:
        message = f"the page size must be at least 1, got {size}"
        raise InvalidArgumentError(message, reason="PAGE_SIZE_INVALID")
    size = min(size, limits.PAGE_SIZE_MAX)
    places = _places_of(query, cursor, len(nodes))
    asked = [node for node in nodes if places[node.index] is not None]
    looks = await nodes.all(lambda node: _look(node, query, places[node.index] or "", size), asked)
    key = order_of(query)
    counts = _shares(looks, size, key)
    parts = await nodes.all(
        lambda node: next(
            look.taken(query, count) for look, count in zip(looks, counts, strict=True) if look.node is node
        ),
        asked,
    )
    for node, (_, place) in zip(asked, parts, strict=True):
        places[node.index] = place
    jobs = sorted((job for part, _ in parts for job in part), key=key)
    return SearchPage(jobs, _cursor_of(query, places))


def order_of(query: JobQuery) -> Key:
    """Returns the sort key of the results: by creation time, ids ascending within a millisecond."""
    sign = 1 if query.oldest_first else -1
    return lambda job: (sign * job.created_ms, job.id)


async def _look(node: Node, query: JobQuery, place: str, size: int) -> _NodeMatches:
    """Reads the node's next matches after a place, and moves the place past pages without matches."""
    for _ in range(_LOOKS_MAX):
        found = await node.jobs.find(query, place, size)
        if found.jobs or not found.cursor:
            break
        place = found.cursor
    return _NodeMatches(node, place, found.jobs, found.cursor)


def _shares(looks: Sequence[_NodeMatches], size: int, key: Key) -> list[int]:
    """Returns how many of each node's jobs belong to the next page."""
    if any(look.after and not look.jobs for look in looks):
        return [0] * len(looks)  # that node may still find a job that comes before all others
    ends = [key(look.jobs[-1]) for look in looks if look.after]
    merged = sorted(key(job) for look in looks for job in look.jobs)
    last = min([*ends, *merged[size - 1 : size], *merged[-1:]], default=(0, ""))
    return [sum(key(job) <= last for job in look.jobs) for look in looks]


def _cursor_of(query: JobQuery, places: list[str | None]) -> str:
    return "" if all(place is None for place in places) else cursor_at(places, query)


def _places_of(query: JobQuery, cursor: str, nodes: int) -> list[str | None]:
    """Returns the place of each node: empty at its beginning, None at its end."""
    if not cursor:
        return [""] * nodes
    places = place_in(cursor, list[str | None], query)
    if places is None or len(places) != nodes:
        raise InvalidArgumentError(
            "the cursor is not from the same search of the same nodes; start again without a cursor",
            reason="CURSOR_INVALID",
        )
    return places
