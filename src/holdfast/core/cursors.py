"""Cursors: opaque text from which a query continues. A cursor is valid for one query only.

A cursor is not a secret: a client with a forged cursor can read no more than a client without one.
"""

import base64
import binascii
import zlib
from typing import TypeVar

import msgspec

Place = TypeVar("Place")


def cursor_at(place: object, query: object) -> str:
    """Encodes the place from which this query continues."""
    data = msgspec.msgpack.encode((place, _checksum(query)))
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def place_in(cursor: str, kind: type[Place], query: object) -> Place | None:
    """Decodes the place in a cursor; None if this query did not produce the cursor."""
    if not cursor.isascii():
        return None
    try:
        data = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        # A typed decode cannot build a value that is deeper or larger than a place.
        place, _ = msgspec.msgpack.decode(data, type=tuple[kind, int])  # type: ignore[valid-type]
    except (binascii.Error, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return place if cursor_at(place, query) == cursor else None


def _checksum(query: object) -> int:
    words = repr(msgspec.to_builtins(query, order="deterministic"))
    return zlib.crc32(words.encode(errors="backslashreplace"))
