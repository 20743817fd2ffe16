"""Arrays packed by hand, in the binary form that the database reads: psycopg goes over every item several times."""

import struct
from collections.abc import Sequence

from psycopg.adapt import Dumper
from psycopg.pq import Format

_UUID, _BYTEA = 2950, 17
#: One dimension, no NULL, the type of the items, how many there are, the first one's index.
_HEADER = struct.Struct("!iiIii")
_LENGTH = struct.Struct("!i")
#: The length of a UUID before each of them, in hexadecimal digits.
_UUID_LENGTH = "00000010"


class Packed:
    """An array that is ready to be sent."""

    __slots__ = ("data",)

    def __init__(self, item_type: int, count: int, items: bytes) -> None:
        self.data = _HEADER.pack(1, 0, item_type, count, 1) + items


class PackedDumper(Dumper):
    """Hands it over as it is; the statement says what it is an array of."""

    format = Format.BINARY

    def dump(self, obj: Packed) -> bytes:
        """The bytes."""
        return obj.data


def uuids(ids: Sequence[str]) -> Packed:
    """Ids that were checked to be UUIDs; there is at least one."""
    digits = _UUID_LENGTH + _UUID_LENGTH.join(ids).replace("-", "")
    return Packed(_UUID, len(ids), bytes.fromhex(digits))


def byte_strings(values: Sequence[bytes]) -> Packed:
    """Any bytes; there is at least one."""
    return Packed(
        _BYTEA, len(values), b"".join([part for value in values for part in (_LENGTH.pack(len(value)), value)])
    )
