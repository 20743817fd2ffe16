"""Cursors: text that names where one query goes on, and belongs to that query alone.

A cursor is opaque to clients, and no secret: whoever makes one up sees no more than who asks without.
"""

import base64
import binascii
import zlib
from typing import TypeVar

import msgspec

Place = TypeVar("Place")


def cursor_at(place: object, query: object) -> str:
    """The place where this query goes on, as text."""
    data = msgspec.msgpack.encode((place, _checksum(query)))
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def place_in(cursor: str, kind: type[Place], query: object) -> Place | None:
    """The place that a cursor of this query names; None for what this query never gave."""
    if not cursor.isascii():
        return None
    try:
        data = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        # By its type, so that nothing is built that is deeper or larger than a place.
        place, _ = msgspec.msgpack.decode(data, type=tuple[kind, int])  # type: ignore[valid-type]
    except (binascii.Error, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return place if cursor_at(place, query) == cursor else None


def _checksum(query: object) -> int:
    words = repr(msgspec.to_builtins(query, order="deterministic"))
    return zlib.crc32(words.encode(errors="backslashreplace"))
