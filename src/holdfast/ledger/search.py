"""What a search looks for, and the cursors by which it goes on: each names the last place that was looked at."""

from collections.abc import Callable

from holdfast import limits
from holdfast.core.cursors import cursor_at, place_in
from holdfast.core.listing import Place
from holdfast.core.model import Job
from holdfast.errors import InvalidArgumentError
from holdfast.ports import JobQuery

#: A place with the longest id, and the checksum, in base64 of its bytes.
_CURSOR_CHARS_MAX = 8 * limits.JOB_ID_CHARS_MAX


def wanted_by(query: JobQuery) -> Callable[[Job], bool]:
    """Whether a job has the queue, the type and the labels that are looked for."""
    labels = set(query.labels.items())

    def wants(job: Job) -> bool:
        template = job.template
        if (query.queue and template.queue != query.queue) or (query.type and template.type != query.type):
            return False
        return not labels or (job.extra is not None and labels.issubset(job.extra.labels))

    return wants


def cursor_of(query: JobQuery, place: Place | None) -> str:
    """Where this query goes on; nothing, if it is at its end."""
    return "" if place is None else cursor_at(place, query)


def place_of(query: JobQuery, cursor: str) -> Place | None:
    """The place that a cursor of this query names; None for an empty one."""
    if not cursor:
        return None
    place = place_in(cursor, tuple[int, str], query) if len(cursor) <= _CURSOR_CHARS_MAX else None
    if place is None:
        raise InvalidArgumentError(
            "expected the cursor to be one that the same search gave; begin again without one",
            reason="CURSOR_INVALID",
        )
    return place
