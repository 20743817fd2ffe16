"""The port of a journal's readers: its frames and snapshots, for recovery, snapshots, backups and time travel.

A reader may be in another process than the writer, which uses `Journal` (port.py) and may be writing meanwhile.

Invariants of every implementation:
- Frames are yielded in order, without gaps and verified; a damaged one raises, and is never skipped.
- A snapshot is listed only when it is complete and durable. Its chunks are verified while they are read.
- A reader changes no frame. If the storage fails, the error is an OSError or a JournalError.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from holdfast.journal.port import Frame
from holdfast.journal.snapshot import SnapshotHeader


class JournalView(Protocol):
    """A journal at one instant: every frame that was durable then; the properties do not change."""

    @property
    def first_position(self) -> int:
        """The lowest position found; 1 if the journal is empty."""
        ...

    @property
    def end_position(self) -> int:
        """The last position found, 0 if there is none."""
        ...

    @property
    def epoch(self) -> int:
        """The highest epoch found."""
        ...

    def frames(self, after: int = 0, *, link: int | None = None) -> Iterator[Frame]:
        """Yield the frames past `after`; raise as `Journal.replay` does."""
        ...


class SnapshotStore(Protocol):
    """The snapshots of one journal."""

    def snapshots(self) -> list[int]:
        """Return the positions of all snapshots, oldest first, including damaged ones."""
        ...

    def snapshot_header(self, position: int) -> SnapshotHeader:
        """Return the header of the snapshot at `position`; raise SnapshotDamagedError if the header is damaged."""
        ...

    def snapshot_chunks(self, position: int) -> Iterator[bytes]:
        """Yield the chunks of the snapshot at `position`; raise SnapshotDamagedError at a damaged part.

        Only the end of the iteration proves that the snapshot is complete.
        """
        ...

    def snapshot_bytes(self, position: int) -> int:
        """Return the stored size of the snapshot at `position`; nothing is verified."""
        ...

    def write_snapshot(self, header: SnapshotHeader, chunks: Iterable[bytes]) -> None:
        """Write a snapshot, durable when this returns; a failure, also one of `chunks`, leaves none."""
        ...

    def remove_snapshot(self, position: int, *, is_durable: bool = False) -> None:
        """Remove the snapshot at `position` if there is one; after a failure it is there or gone.

        Unless `is_durable`, the snapshot may be there again after a power cut.
        """
        ...

    def free_bytes(self) -> float:
        """Return the space left for frames and snapshots in bytes; `math.inf` if the engine knows no limit."""
        ...


class JournalArchive(SnapshotStore, Protocol):
    """The frames and snapshots of one journal."""

    def cluster_id(self) -> bytes:
        """Return the sixteen bytes that identify the journal, which must have a frame."""
        ...

    def view(self) -> JournalView:
        """Return the journal as it is now; raise JournalDamagedError if it is damaged."""
        ...

    def pin(self, position: int) -> AbstractContextManager[None]:
        """Keep the frames from `position` on until the block ends; after a failure nothing is kept.

        A reader pins first and reads afterwards. If a frame was removed before the pin, reading it raises
        PositionRemovedError.
        """
        ...

    def sealed_frames(self, after: int = 0, *, link: int | None = None) -> Iterator[Frame]:
        """Yield the frames past `after` that no writer can still be writing; raise as `Journal.replay` does.

        Some of the newest durable frames may be missing. The caller holds a pin at `after + 1`.
        """
        ...
