"""Arrays encoded by hand in PostgreSQL's binary format: psycopg iterates over every item several times."""

import struct
from collections.abc import Sequence

from psycopg.adapt import Dumper
from psycopg.pq import Format

_UUID, _BYTEA = 2950, 17
#: Number of dimensions, NULL flag, type of the items, number of items, index of the first item.
_HEADER = struct.Struct("!iiIii")
_LENGTH = struct.Struct("!i")
#: The length prefix of each UUID, in hexadecimal digits.
_UUID_LENGTH = "00000010"


class Packed:
    """An array in PostgreSQL's binary format."""

    __slots__ = ("data",)

    def __init__(self, item_type: int, count: int, items: bytes) -> None:
        self.data = _HEADER.pack(1, 0, item_type, count, 1) + items


class PackedDumper(Dumper):
    """Sends a packed array unchanged; the statement casts it to its type."""

    format = Format.BINARY

    def dump(self, obj: Packed) -> bytes:
        """Returns the encoded bytes."""
        return obj.data


def uuids(ids: Sequence[str]) -> Packed:
    """Packs one or more ids that were checked to be UUIDs."""
    digits = _UUID_LENGTH + _UUID_LENGTH.join(ids).replace("-", "")
    return Packed(_UUID, len(ids), bytes.fromhex(digits))


def byte_strings(values: Sequence[bytes]) -> Packed:
    """Packs one or more byte strings."""
    return Packed(
        _BYTEA, len(values), b"".join([part for value in values for part in (_LENGTH.pack(len(value)), value)])
    )
