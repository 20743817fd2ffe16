"""The checksum of a frame in the database, and the chain that it forms with the frames before it.

Invariant: a frame that passes `verify` has exactly the fields that `seal` was given, and follows the frame before it.
"""

import struct
import zlib

from holdfast.journal.errors import JournalDamagedError
from holdfast.topologies.cluster.ports import StoredFrame

#: First position, count, epoch, digest, its version, link.
_FIELDS = struct.Struct(">QIQQII")
_ADVICE = "restore the database from a backup"


def seal(
    *, first_position: int, count: int, epoch: int, digest: int, digest_version: int, link: int, body: bytes
) -> StoredFrame:
    """Returns the frame with its checksum; `link` is the checksum of the frame before, 0 for the first."""
    head = _FIELDS.pack(first_position, count, epoch, digest, digest_version, link)
    checksum = zlib.crc32(body, zlib.crc32(head))
    return StoredFrame(first_position, count, epoch, digest, digest_version, link, checksum, body)


def verify(frame: StoredFrame, *, shard: int, after: int, link: int | None) -> None:
    """Raises JournalDamagedError unless this is the undamaged frame of the position past `after`.

    `link` is the checksum of the frame that ends at `after`; None if it is unknown.
    """
    if _checksum(frame) != frame.checksum:
        raise damaged(shard, frame.first_position, "the frame there does not match its checksum")
    if frame.first_position > after + 1:
        raise missing(shard, after + 1)
    if link is not None and frame.first_position == after + 1 and frame.link != link:
        raise damaged(shard, frame.first_position, "the frame there does not follow the frame before it")


def missing(shard: int, position: int) -> JournalDamagedError:
    """Returns the error for a position that no frame contains."""
    return damaged(shard, position, "there is no frame with this position, but a later one")


def damaged(shard: int, position: int, problem: str) -> JournalDamagedError:
    """Returns the error for a damaged frame of a shard."""
    return JournalDamagedError(f"shard {shard}", 0, position, problem, advice=_ADVICE)


def _checksum(frame: StoredFrame) -> int | None:
    """Returns the checksum that the fields give; None for fields that `seal` cannot have been given."""
    fields = (frame.first_position, frame.count, frame.epoch, frame.digest, frame.digest_version, frame.link)
    try:
        return zlib.crc32(frame.body, zlib.crc32(_FIELDS.pack(*fields)))
    except struct.error:
        return None
