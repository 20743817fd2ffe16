"""A second engine behind the port `JournalArchive`: no files, no segments, and every durable frame is sealed."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from holdfast.journal.errors import PositionRemovedError
from holdfast.journal.memory import MemoryJournal
from holdfast.journal.port import Frame
from holdfast.journal.snapshot import SnapshotHeader


class MemoryView:
    """The frames of a journal in memory at one instant."""

    def __init__(self, journal: MemoryJournal) -> None:
        self._journal = journal
        self.first_position = journal.first_position
        self.end_position = journal.end_position
        self.epoch = journal.epoch

    def frames(self, after: int = 0, *, link: int | None = None) -> Iterator[Frame]:
        return (frame for frame in self._journal.replay(after, link=link) if frame.last_position <= self.end_position)


class MemoryArchive:
    """The archive of a journal in memory, and the pins that its `remove` respects."""

    def __init__(self, journal: MemoryJournal) -> None:
        self._journal = journal
        self._snapshots: dict[int, tuple[SnapshotHeader, list[bytes]]] = {}
        self._pins: list[int] = []

    def remove(self, before: int) -> None:
        """Removes the frames up to `before` that no reader has pinned."""
        self._journal.remove_segments(min([before, *(position - 1 for position in self._pins)]))

    def cluster_id(self) -> bytes:
        return self._journal.cluster_id

    def view(self) -> MemoryView:
        return MemoryView(self._journal)

    @contextmanager
    def pin(self, position: int) -> Iterator[None]:
        self._pins.append(position)
        try:
            yield
        finally:
            self._pins.remove(position)

    def sealed_frames(self, after: int = 0, *, link: int | None = None) -> Iterator[Frame]:
        return self.view().frames(after, link=link)

    def snapshots(self) -> list[int]:
        return sorted(self._snapshots)

    def snapshot_header(self, position: int) -> SnapshotHeader:
        return self._found(position)[0]

    def snapshot_chunks(self, position: int) -> Iterator[bytes]:
        yield from self._found(position)[1]

    def snapshot_bytes(self, position: int) -> int:
        return sum(map(len, self._found(position)[1]))

    def write_snapshot(self, header: SnapshotHeader, chunks: Iterable[bytes]) -> None:
        self._snapshots[header.position] = (header, [chunk for chunk in chunks if chunk])

    def remove_snapshot(self, position: int, *, is_durable: bool = False) -> None:
        del is_durable
        self._snapshots.pop(position, None)

    def free_bytes(self) -> float:
        return math.inf

    def _found(self, position: int) -> tuple[SnapshotHeader, list[bytes]]:
        if position not in self._snapshots:
            raise PositionRemovedError(f"there is no snapshot at position {position}")
        return self._snapshots[position]
