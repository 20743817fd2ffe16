"""The port of the journal: frames of opaque bytes, in order, durable when `write` returns.

Invariants of every implementation:
- Positions count events from 1 without gaps; a frame contains `count` events and is durable as a whole or not at all.
- `end_position` is the last durable position; it never decreases while the journal is open.
- After JournalFailedError every call except `close` and `release` raises it again; the properties keep their values.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import msgspec

from holdfast.journal.frame import FRAME_OVERHEAD
from holdfast.journal.version import DIGEST_VERSION

__all__ = ["FRAME_OVERHEAD", "Frame", "Journal", "JournalConfig", "SegmentInfo"]


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One frame of a replay."""

    first_position: int
    count: int
    digest: int
    body: bytes
    # The next frame, and a snapshot taken after this frame, link to it.
    checksum: int
    # The version of the digest; from the header of the frame's segment.
    digest_version: int

    @property
    def last_position(self) -> int:
        return self.first_position + self.count - 1


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One file of the journal; `last_position` is `first_position - 1` when it has no frame."""

    name: str
    first_position: int
    last_position: int
    epoch: int
    bytes: int
    is_sealed: bool
    # The time of its creation; 0 if unknown.
    created_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalConfig:
    """Sizes, and the version of the digests that the caller passes to `write`."""

    # Large enough that rolls are rare, small enough that the deletion of whole segments follows retention closely.
    segment_bytes: int = 64 * 1024 * 1024
    # Unit of space reservation: one call for some hundreds of frames.
    extent_bytes: int = 16 * 1024 * 1024
    digest_version: int = DIGEST_VERSION


class Journal(Protocol):
    """A single-writer log. One thread at a time calls `write`; other threads may call the other methods meanwhile."""

    @property
    def cluster_id(self) -> bytes:
        """Sixteen bytes that identify this journal."""
        ...

    @property
    def epoch(self) -> int:
        """The number of this opening; greater than the number of every earlier opening."""
        ...

    @property
    def first_position(self) -> int:
        """The lowest position that can be replayed; if it is above 1, a snapshot is needed for the complete state."""
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
        ends before `after`, if the link differs, or if a frame is damaged.
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
        """Make one frame durable and return the new end position; `now_ms` is the creation time of a new segment.

        Raises JournalFullError, without any change, if the frame was not reserved and does not fit. Any other
        failure is a JournalFailedError, and final.
        """
        ...

    def segments(self) -> list[SegmentInfo]:
        """Return the journal's files, oldest first."""
        ...

    def remove_segments(self, before: int) -> list[str]:
        """Delete the sealed segments that end at or before `before` and that no pin needs; return their names."""
        ...

    def close(self) -> None:
        """Close cleanly; after a failure, only release resources. Calling it twice is harmless."""
        ...
