"""The frames and snapshots in a directory, for readers in any process.

Invariants: no lock is taken; of the journal's files, only snapshots are written and removed, and pins are made.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager

from holdfast.journal.disk import Disk
from holdfast.journal.pins import pin
from holdfast.journal.port import Frame
from holdfast.journal.reader import JournalReader
from holdfast.journal.replay import read_headers, read_sealed
from holdfast.journal.snapshot import (
    SnapshotHeader,
    list_snapshots,
    read_snapshot,
    read_snapshot_header,
    snapshot_bytes,
    snapshot_name,
    write_snapshot,
)
from holdfast.journal.whole_write import remove_if_present


class DirectoryArchive:
    """The `JournalArchive` of a directory."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def cluster_id(self) -> bytes:
        return read_headers(self._disk)[0].cluster_id

    def view(self) -> JournalReader:
        return JournalReader(self._disk)

    def pin(self, position: int) -> AbstractContextManager[None]:
        return pin(self._disk, position)

    def sealed_frames(self, after: int = 0, *, link: int | None = None) -> Iterator[Frame]:
        """Yield the frames of all segments but the newest."""
        return read_sealed(self._disk, after=after, link=link)

    def snapshots(self) -> list[int]:
        return list_snapshots(self._disk)

    def snapshot_header(self, position: int) -> SnapshotHeader:
        return read_snapshot_header(self._disk, position)

    def snapshot_chunks(self, position: int) -> Iterator[bytes]:
        return read_snapshot(self._disk, position)

    def snapshot_bytes(self, position: int) -> int:
        return snapshot_bytes(self._disk, position)

    def write_snapshot(self, header: SnapshotHeader, chunks: Iterable[bytes]) -> None:
        write_snapshot(self._disk, header, chunks)

    def remove_snapshot(self, position: int, *, is_durable: bool = False) -> None:
        remove_if_present(self._disk, snapshot_name(position))
        if is_durable:
            self._disk.sync_dir()

    def free_bytes(self) -> int:
        return self._disk.free_bytes()
