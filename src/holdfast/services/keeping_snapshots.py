"""When an owner's state is written as a snapshot, and what that makes superfluous.

The state is copied into memory between two frames, and written beside the service, which goes on. It is written when
the journal has grown by the limit, or by the size of the last snapshot if that is more, so that copying stays a fixed
part of all the work however large the state is.

Invariants: two snapshots are kept, and segments are removed only if the older one covers them, so that damage to one
costs time and nothing else. A snapshot that cannot be written is told and tried again later; nothing depends on it.
"""

import contextlib

import msgspec

from holdfast.journal.disk import Disk
from holdfast.journal.file import FileJournal
from holdfast.journal.snapshot import SnapshotHeader, list_snapshots, snapshot_name, write_snapshot
from holdfast.journal.writing import remove_if_present
from holdfast.logs import get_logger
from holdfast.services.keeping_journal import Machine

SNAPSHOTS_KEPT = 2


class Copy(msgspec.Struct, frozen=True):
    """A state that is about to become durable at the end of a frame."""

    digest: int
    last_ms: int
    chunks: list[bytes]


class Compactor:
    """Makes snapshots of one machine; `grew`, `copy` and `header` belong to the loop, `write` may run beside it."""

    def __init__(
        self, machine: Machine, journal: FileJournal, disk: Disk, *, digest_version: int, limit_bytes: int, grown: int
    ) -> None:
        self._machine = machine
        self._journal = journal
        self._disk = disk
        self._digest_version = digest_version
        self._limit_bytes = limit_bytes
        self._due_at = limit_bytes
        self._grown = grown
        self._is_writing = False

    def grew(self, size: int) -> None:
        """The journal is about to grow by so many bytes."""
        self._grown += size

    def copy(self, last_ms: int) -> Copy | None:
        """The state as it is now, if a snapshot is due."""
        if self._is_writing or self._grown < self._due_at:
            return None
        chunks = list(self._machine.image())
        self._is_writing = True
        self._due_at = max(self._limit_bytes, sum(map(len, chunks)))
        self._grown = 0
        return Copy(self._machine.digest, last_ms, chunks)

    def header(self, copy: Copy) -> SnapshotHeader:
        """What names the copy once its frame is the last durable one."""
        return SnapshotHeader(
            digest_version=self._digest_version,
            cluster_id=self._journal.cluster_id,
            position=self._journal.end_position,
            link=self._journal.end_checksum,
            log_time_ms=copy.last_ms,
            digest=copy.digest,
        )

    def write(self, header: SnapshotHeader, copy: Copy) -> int:
        """Writes the snapshot and removes what two of them cover; returns its position, or 0 if that failed.

        `JournalFailedError` if segments could not be removed: then the journal is no longer usable.
        """
        try:
            write_snapshot(self._disk, header, copy.chunks)
            positions = list_snapshots(self._disk)
            for position in positions[:-SNAPSHOTS_KEPT]:
                remove_if_present(self._disk, snapshot_name(position))
        except OSError as error:
            get_logger().error("snapshot_failed", message=str(error))
            with contextlib.suppress(OSError):  # not even its name can be relied upon
                remove_if_present(self._disk, header.name)
            return 0
        if len(positions) >= SNAPSHOTS_KEPT:
            self._journal.remove_segments(positions[-SNAPSHOTS_KEPT])
        return header.position

    def written(self) -> None:
        """The next one may be made."""
        self._is_writing = False
