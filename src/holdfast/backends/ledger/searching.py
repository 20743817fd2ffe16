"""What a search looks for, and the cursors by which it goes on.

A cursor names the last place that was looked at and the query it belongs to. It is opaque to clients, and no secret:
whoever makes one up sees no more than who asks without.
"""

import base64
import binascii
import zlib
from collections.abc import Callable

import msgspec

from holdfast import limits
from holdfast.backends.ports import JobQuery
from holdfast.core.listing import Place
from holdfast.core.model import Job
from holdfast.errors import InvalidArgumentError

#: A place with the longest id, and the checksum, in base64 of its bytes.
_CURSOR_CHARS_MAX = 8 * limits.JOB_ID_CHARS_MAX


class _Cursor(msgspec.Struct, frozen=True, array_like=True):
    created_ms: int
    job_id: str
    checksum: int


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
    if place is None:
        return ""
    data = msgspec.msgpack.encode(_Cursor(*place, _checksum(query)))
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def place_of(query: JobQuery, cursor: str) -> Place | None:
    """The place that a cursor of this query names; None for an empty one."""
    if not cursor:
        return None
    found = _decoded(cursor)
    if found is None or cursor_of(query, (found.created_ms, found.job_id)) != cursor:
        raise InvalidArgumentError(
            "expected the cursor to be one that the same search gave; begin again without one",
            reason="CURSOR_INVALID",
        )
    return found.created_ms, found.job_id


def _decoded(cursor: str) -> _Cursor | None:
    if len(cursor) > _CURSOR_CHARS_MAX or not cursor.isascii():
        return None
    try:
        data = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        return msgspec.msgpack.decode(data, type=_Cursor)
    except (binascii.Error, msgspec.MsgspecError):
        return None


def _checksum(query: JobQuery) -> int:
    parts = (
        sorted(query.states),
        query.queue,
        query.type,
        sorted(query.labels.items()),
        query.created_from_ms,
        query.created_before_ms,
        query.oldest_first,
    )
    return zlib.crc32(repr(parts).encode(errors="backslashreplace"))
