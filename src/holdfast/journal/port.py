"""The journal as the layer above sees it: frames of opaque bytes, in order, durable when `write` returns.

Invariants of every implementation:
- Positions count events from 1 without gaps; a frame holds `count` of them and is durable whole or not at
  all.
- `end_position` is the last durable position; it never goes back while the journal is open.
- After JournalFailedError every call but `close` and `release` raises it again; the properties stay as they were.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import msgspec

from holdfast.journal.frame import FRAME_OVERHEAD
from holdfast.journal.version import DIGEST_VERSION

__all__ = ["FRAME_OVERHEAD", "Frame", "Journal", "JournalConfig", "SegmentInfo"]


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One frame as replayed."""

    first_position: int
    count: int
    digest: int
    body: bytes
    # What the next frame links to; a snapshot taken after this frame carries it.
    checksum: int
    # What the digest was computed by: that of the segment which the frame is in.
    digest_version: int

    @property
    def last_position(self) -> int:
        return self.first_position + self.count - 1


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One file of the journal; `last_position` is `first_position - 1` when it holds no frame."""

    name: str
    first_position: int
    last_position: int
    epoch: int
    bytes: int
    is_sealed: bool
    # When it was begun; 0 where that is not known.
    created_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalConfig:
    """Sizes, and the version of the digests that the layer above hands in."""

    # Large enough that rolling is rare, small enough that deleting whole segments follows retention closely.
    segment_bytes: int = 64 * 1024 * 1024
    # How far ahead of need space is reserved: one call per some hundreds of frames.
    extent_bytes: int = 16 * 1024 * 1024
    digest_version: int = DIGEST_VERSION


class Journal(Protocol):
    """A single-writer log. `write` belongs to one thread at a time; the rest may be called beside it."""

    @property
    def cluster_id(self) -> bytes:
        """Sixteen bytes that tell this journal from all others."""
        ...

    @property
    def epoch(self) -> int:
        """The number of this opening; greater than that of every opening before."""
        ...

    @property
    def first_position(self) -> int:
        """The lowest position that can be replayed; above 1, only a snapshot makes the journal complete."""
        ...

    @property
    def end_position(self) -> int:
        """The last durable position, 0 when there is none."""
        ...

    @property
    def end_checksum(self) -> int:
        """The checksum of the frame that ends at `end_position`, 0 when there is none."""
        ...

    def replay(self, after: int = 0, *, link: int | None = None) -> Iterator[Frame]:
        """Yield the frames past `after`, verified; `link` is the checksum of the frame that must end there.

        Raises PositionRemovedError if frames past `after` are deleted, JournalDamagedError if the journal
        ends before `after`, if the link differs, or if a frame is not what was written.
        """
        ...

    def reserve(self, size: int, *, spare: int = 0) -> bool:
        """Grant `size` more bytes of frames if `spare` bytes stay free beyond them; False changes nothing.

        Granted bytes can always be written. A frame takes `FRAME_OVERHEAD + len(body)` of them.
        """
        ...

    def release(self, size: int) -> None:
        """Give back granted bytes that no frame will use."""
        ...

    def write(self, body: bytes, count: int, digest: int, now_ms: int | None = None) -> int:
        """Make one frame durable and return the new end position; `now_ms` dates a segment begun for it.

        Raises JournalFullError, having changed nothing, if the frame was not reserved and does not fit. Any
        other failure is a JournalFailedError, and final.
        """
        ...

    def segments(self) -> list[SegmentInfo]:
        """Return the journal's files, oldest first."""
        ...

    def remove_segments(self, before: int) -> list[str]:
        """Delete the sealed segments that end at or before `before` and that no pin needs; name them."""
        ...

    def close(self) -> None:
        """Close cleanly; after a failure, only give everything up. Calling it twice is harmless."""
        ...
