"""Frames: the unit that one write and one sync make durable.

Layout, big-endian:

    magic 4 | body bytes u32 | first position u64 | count u32 | mask u8 | zeros 3 | digest u64
    | link u32 (checksum of the frame before) | body checksum u32 | header checksum u32
    | body, each byte XORed with the mask | trailer 4

Invariants:
- The header checksum starts from the segment's salt (the checksum of the segment's own header). So neither the bytes
  of a payload nor a frame of another segment can be mistaken for a header.
- Every part of a frame that lies in one 512-byte sector stays non-zero even after one flipped bit. So a sector of
  zeros inside a frame means that the sector never reached the disk. The mask ensures this for whole sectors (runs of
  zeros in payloads are common; if one mask would produce zeros, another is used), magic and trailer for the ends.
"""

import struct
import zlib
from typing import NamedTuple

import msgspec

SECTOR_BYTES = 512
MAGIC = b"\xf5HF\xb7"
TRAILER = b"\xe7\x5a\xc3\x7e"
BODY_BYTES_MAX = 256 * 1024 * 1024

_HEADER = struct.Struct(">4sIQIB3xQII")
_CHECKSUM = struct.Struct(">I")
_CHECKED_BYTES = _HEADER.size
HEADER_BYTES = _CHECKED_BYTES + _CHECKSUM.size
FRAME_OVERHEAD = HEADER_BYTES + len(TRAILER)

# The first choice: msgpack and UTF-8 never contain this byte, so masked bodies rarely contain zeros.
_MASK = 0xC1
_MASKS = (_MASK, *(mask for mask in range(1, 256) if mask != _MASK))
_TABLES = tuple(bytes(value ^ mask for value in range(256)) for mask in range(256))


class FrameHeader(msgspec.Struct, frozen=True, gc=False):
    """A header whose checksum has been verified."""

    body_bytes: int
    first_position: int
    count: int
    mask: int
    digest: int
    link: int
    body_checksum: int
    checksum: int

    @property
    def frame_bytes(self) -> int:
        return FRAME_OVERHEAD + self.body_bytes


class EncodedFrame(NamedTuple):
    """A frame ready to be written, and the checksum that the next one links to."""

    data: bytes
    checksum: int


def encode(
    body: bytes, *, first_position: int, count: int, digest: int, link: int, salt: int, offset: int
) -> EncodedFrame:
    """Encode one frame for `offset` in its file."""
    assert 0 < len(body) <= BODY_BYTES_MAX, f"expected a body of 1 to {BODY_BYTES_MAX} bytes, got {len(body)}"
    assert count > 0, "a frame holds at least one event"
    assert first_position > 0, "positions count from 1"
    masked, mask = _masked(body, offset + HEADER_BYTES)
    head = _HEADER.pack(MAGIC, len(body), first_position, count, mask, digest, link, zlib.crc32(masked))
    checksum = zlib.crc32(head, salt)
    return EncodedFrame(b"".join((head, _CHECKSUM.pack(checksum), masked, TRAILER)), checksum)


def decode_header(data: bytes, at: int, salt: int) -> FrameHeader | None:
    """Return the header at `at`, or None if it is incomplete or damaged."""
    if len(data) - at < HEADER_BYTES or not data.startswith(MAGIC, at):
        return None
    (checksum,) = _CHECKSUM.unpack_from(data, at + _CHECKED_BYTES)
    if zlib.crc32(data[at : at + _CHECKED_BYTES], salt) != checksum:
        return None
    _, size, first, count, mask, digest, link, body_checksum = _HEADER.unpack_from(data, at)
    return FrameHeader(size, first, count, mask, digest, link, body_checksum, checksum)


def stored_body(data: bytes, at: int, header: FrameHeader) -> bytes | None:
    """Return the masked body of the frame at `at`, or None if body or trailer is damaged or incomplete."""
    start = at + HEADER_BYTES
    end = start + header.body_bytes
    masked = data[start:end]
    if zlib.crc32(masked) != header.body_checksum or not data.startswith(TRAILER, end):
        return None
    return masked


def unmask(masked: bytes, header: FrameHeader) -> bytes:
    return masked.translate(_TABLES[header.mask])


def find_header(data: bytes, start: int, salt: int) -> int:
    """Return the offset of the first undamaged header at or after `start`, or -1."""
    at = data.find(MAGIC, start)
    while at >= 0 and decode_header(data, at, salt) is None:
        at = data.find(MAGIC, at + 1)
    return at


def _masked(body: bytes, offset: int) -> tuple[bytes, int]:
    """Mask the body so that no sector is nearly all zeros; return it with the mask.

    Only a crafted body, of at least 255 sectors each filled with another mask, defeats every mask. It is stored
    with the last mask; then damage of that frame may be taken for a torn write.
    """
    masked, mask = b"", 0
    for mask in _MASKS:
        masked = body.translate(_TABLES[mask])
        if not _has_thin_sector(masked, -offset % SECTOR_BYTES):
            break
    return masked, mask


def _has_thin_sector(masked: bytes, first: int) -> bool:
    """Return whether some sector without magic or trailer has fewer than two non-zero bytes of the body.

    The first whole sector starts at `first`; the one before it lacks the magic if the header reaches into it.
    """
    if first > SECTOR_BYTES - HEADER_BYTES and _is_thin(masked, 0, first):
        return True
    if first >= len(masked):  # most small frames are within one sector
        return False
    # A thin sector has a zero among its first two bytes, so only such sectors are checked.
    return _is_thin_where_zero(masked, first, 0) or _is_thin_where_zero(masked, first, 1)


def _is_thin_where_zero(masked: bytes, first: int, probe: int) -> bool:
    """Return whether a sector is thin among those whose byte `probe` is zero."""
    probed = masked[first + probe :: SECTOR_BYTES]
    sector = probed.find(0)
    while sector >= 0:
        start = first + sector * SECTOR_BYTES
        if _is_thin(masked, start, start + SECTOR_BYTES):
            return True
        sector = probed.find(0, sector + 1)
    return False


def _is_thin(masked: bytes, start: int, end: int) -> bool:
    return len(masked) >= end and masked.count(0, start, end) > end - start - 2
