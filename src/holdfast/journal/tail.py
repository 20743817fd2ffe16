"""The verdict on the bytes after the last good frame of the newest segment.

Invariants: reserved space is zeros, one frame is written per sync, and no part of a frame within one sector is ever all
zeros (see frame.py). Hence
- only zeros: the journal ends here;
- an undamaged header further on: this frame was durable once, because the next one is written after its sync;
- an undamaged header of another frame at this place: the frame that belongs here was durable once, likewise;
- the stored bytes end before the frame does, or a sector of it is zeros: the frame never was durable, it is torn;
- anything else is damage.
"""

from dataclasses import dataclass
from enum import Enum

from holdfast.journal.disk import File
from holdfast.journal.frame import FRAME_OVERHEAD, HEADER_BYTES, SECTOR_BYTES, FrameHeader, find_header
from holdfast.journal.walk import FrameWalker

_CHUNK_BYTES = 1024 * 1024
_ZEROS = bytes(_CHUNK_BYTES)
_FRAME_BYTES_MIN = FRAME_OVERHEAD + 1


class TailVerdict(Enum):
    """The kinds of bytes past the last good frame."""

    CLEAN = "clean"
    TORN = "torn"
    DAMAGED = "damaged"
    # Damaged, and known to have been durable: the repair command does not cut it.
    FOLLOWED = "followed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The end of the good frames, the verdict on the bytes after it, and the end of the last non-zero byte."""

    verdict: TailVerdict
    offset: int
    content_end: int
    problem: str = ""


def judge(file: File, walker: FrameWalker) -> Tail:
    """Judge the bytes past the point where `walker` ended."""
    offset = walker.offset
    if _is_zeros_from(file, offset):
        return Tail(verdict=TailVerdict.CLEAN, offset=offset, content_end=offset)
    rest = file.read_at(offset, file.size() - offset)
    verdict, problem = _judge_bytes(rest, walker)
    return Tail(verdict=verdict, offset=offset, content_end=offset + _content_bytes(rest), problem=problem)


def _judge_bytes(rest: bytes, walker: FrameWalker) -> tuple[TailVerdict, str]:
    header = walker.stop_header
    later = find_header(rest, header.frame_bytes if header else 1, walker.salt)
    if later >= 0:
        return (
            TailVerdict.FOLLOWED,
            f"a valid frame follows it at offset {walker.offset + later}, so it was durable once",
        )
    if not walker.is_linked:
        return TailVerdict.FOLLOWED, "the valid frame there does not follow the one before it"
    is_torn = _is_torn_frame(rest, walker.offset, header) if header else _is_torn_start(rest, walker.offset)
    if is_torn:
        return TailVerdict.TORN, "the last frame was not written completely"
    return TailVerdict.DAMAGED, "the last frame is complete but does not match its checksums"


def _is_torn_frame(rest: bytes, offset: int, header: FrameHeader) -> bool:
    """Return whether a frame with a good header, so that its size is known, is torn."""
    content = _content_bytes(rest)
    if content != header.frame_bytes:
        # Fewer bytes: some are missing. More bytes: not a torn write, because nothing is written past the last frame.
        return content < header.frame_bytes
    return any(_is_zeros(rest[start:end]) for start, end in _sectors(offset, header.frame_bytes))


def _is_torn_start(rest: bytes, offset: int) -> bool:
    """Return whether a frame without a good header is torn: a sector of the header is zeros, or the rest is missing."""
    if _content_bytes(rest) < _FRAME_BYTES_MIN:
        return True
    return any(_is_zeros(rest[start:end]) for start, end in _sectors_whole(offset))


def _sectors(offset: int, size: int) -> list[tuple[int, int]]:
    """Split `size` bytes at `offset` at sector boundaries; the results are relative to `offset`."""
    first = SECTOR_BYTES - offset % SECTOR_BYTES
    starts = [0, *range(first, size, SECTOR_BYTES)]
    return [(start, min(end, size)) for start, end in zip(starts, [*starts[1:], size], strict=True)]


def _sectors_whole(offset: int) -> list[tuple[int, int]]:
    """Return the parts, from `offset` on, of the one or two sectors that contain a header there."""
    first = SECTOR_BYTES - offset % SECTOR_BYTES
    if first >= HEADER_BYTES:
        return [(0, first)]
    return [(0, first), (first, first + SECTOR_BYTES)]


def _is_zeros_from(file: File, offset: int) -> bool:
    while chunk := file.read_at(offset, _CHUNK_BYTES):
        if not _is_zeros(chunk):
            return False
        offset += len(chunk)
    return True


def _is_zeros(data: bytes) -> bool:
    return data == _ZEROS[: len(data)] if len(data) <= _CHUNK_BYTES else not data.strip(b"\0")


def _content_bytes(data: bytes) -> int:
    return len(data.rstrip(b"\0"))
