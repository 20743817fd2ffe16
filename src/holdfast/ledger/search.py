"""The filter of a search, and its cursors: each names the last place that the search has read."""

from collections.abc import Callable

from holdfast import limits
from holdfast.core.cursors import cursor_at, place_in
from holdfast.core.listing import Place
from holdfast.core.model import JobRecord
from holdfast.errors import InvalidArgumentError
from holdfast.ports import JobQuery

#: Enough for a place with the longest id and the checksum, in base64.
_CURSOR_CHARS_MAX = 8 * limits.JOB_ID_CHARS_MAX


def wanted_by(query: JobQuery) -> Callable[[JobRecord], bool]:
    """Returns a filter for jobs with the queue, the type and the labels of the query."""
    labels = set(query.labels.items())

    def wants(job: JobRecord) -> bool:
        template = job.template
        if (query.queue and template.queue != query.queue) or (query.type and template.type != query.type):
            return False
        return not labels or (job.extra is not None and labels.issubset(job.extra.labels))

    return wants


def cursor_of(query: JobQuery, place: Place | None) -> str:
    """Returns the cursor to continue this query; empty at its end."""
    return "" if place is None else cursor_at(place, query)


def place_of(query: JobQuery, cursor: str) -> Place | None:
    """Returns the place in a cursor of this query; None for an empty cursor."""
    if not cursor:
        return None
    place = place_in(cursor, tuple[int, str], query) if len(cursor) <= _CURSOR_CHARS_MAX else None
    if place is None:
        raise InvalidArgumentError(
            "the cursor is not from the same search; start again without a cursor",
            reason="CURSOR_INVALID",
        )
    return place
