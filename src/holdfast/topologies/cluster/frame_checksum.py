"""The checksum of a stored frame: CRC-32 over the other fields, big-endian, then the body.

The database verifies none of it: the checksum finds damage, and identifies the frame when its leader reads it back.
"""

import struct
import zlib

from msgspec import structs

from holdfast.topologies.cluster.ports import FrameKey, StoredFrame

_FIELDS = struct.Struct(">QIQQII")


def seal(
    body: bytes, *, first_position: int, count: int, epoch: int, digest: int, digest_version: int, link: int
) -> StoredFrame:
    """Returns a frame with its checksum."""
    frame = StoredFrame(first_position, count, epoch, digest, digest_version, link, 0, body)
    return structs.replace(frame, checksum=_checksum(frame))


def verify(frame: StoredFrame) -> bool:
    """Returns whether the checksum of a frame matches its other fields."""
    return frame.checksum == _checksum(frame)


def key_of(frame: StoredFrame) -> FrameKey:
    """Returns what distinguishes a frame from another one at its position."""
    return FrameKey(frame.epoch, frame.checksum)


def _checksum(frame: StoredFrame) -> int:
    head = _FIELDS.pack(frame.first_position, frame.count, frame.epoch, frame.digest, frame.digest_version, frame.link)
    return zlib.crc32(frame.body, zlib.crc32(head))
