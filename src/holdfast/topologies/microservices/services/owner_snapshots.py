"""When an owner's state is written as a snapshot, and what that makes superfluous.

A maker replays the sealed segments onto the snapshot before, into a machine of its own, beside the service: nothing of
the state is read or encoded on the service's loop, however large it is. A snapshot is made when the sealed segments
that none covers have grown to the limit, or to the size of the last snapshot if that is more, so that making them stays
a fixed part of all the work.

Invariants: two snapshots are kept, and segments are removed only if the older one covers them, so that damage to one
costs time and nothing else. A snapshot that cannot be made is told and tried again later; nothing depends on it.
"""

import contextlib
from typing import Protocol

from holdfast.core.digest import DIGEST_VERSION
from holdfast.errors import HoldfastError
from holdfast.journal.disk import Disk
from holdfast.journal.file import FileJournal
from holdfast.journal.pins import pin
from holdfast.journal.replay import read_headers, read_sealed
from holdfast.journal.snapshot import SnapshotHeader, list_snapshots, snapshot_name, write_snapshot
from holdfast.journal.whole_write import remove_if_present
from holdfast.observe.logs import get_logger
from holdfast.topologies.microservices.services.owner_journal import Machine, RestoredOwner, replay_frame

SNAPSHOTS_KEPT = 2


class SnapshotMaker(Protocol):
    """Makes a snapshot of everything sealed, on a thread other than the loop's."""

    def make(self) -> None:
        """Returns when it is durable; raises `OSError` or a `HoldfastError` that says why there is none."""
        ...

    def stop(self) -> None:
        """Lets a `make` that is under way on another thread fail soon, if it can."""
        ...


class ReplayMaker:
    """Makes snapshots in this process: for disks that no other process can read."""

    def __init__(self, machine: Machine, disk: Disk) -> None:
        self._machine = machine
        self._disk = disk

    def make(self) -> None:
        """Replays into a machine like the one that is served."""
        take_snapshot(self._machine.empty(), self._disk)

    def stop(self) -> None:
        """It cannot be stopped."""


def take_snapshot(machine: Machine, disk: Disk) -> int:
    """Replays everything sealed into an empty machine and writes its image; the position, or 0 for nothing new."""
    restored = RestoredOwner([])
    restored.begin(machine, disk)
    position, link, last_ms = restored.position, restored.link, restored.last_ms
    with pin(disk, position + 1):
        for frame in read_sealed(disk, after=position, link=link):
            last_ms = max(last_ms, replay_frame(machine, frame))
            position, link = frame.last_position, frame.checksum
        if position == restored.position:
            return 0
        assert link is not None
        machine.rehash(DIGEST_VERSION)
        header = SnapshotHeader(
            digest_version=DIGEST_VERSION,
            cluster_id=read_headers(disk)[0].cluster_id,
            position=position,
            link=link,
            log_time_ms=last_ms,
            digest=machine.digest,
        )
        try:
            write_snapshot(disk, header, machine.image())
        except OSError:
            with contextlib.suppress(OSError):  # not even its name can be relied upon
                remove_if_present(disk, header.name)
            raise
    return position


class Compactor:
    """Has snapshots made of one owner; `is_due`, `begin` and `ended` belong to the loop, `compact` runs beside it."""

    def __init__(self, journal: FileJournal, disk: Disk, maker: SnapshotMaker, limit_bytes: int) -> None:
        self._journal = journal
        self._disk = disk
        self._maker = maker
        self._limit_bytes = self._due_at = limit_bytes
        self._covered = max(list_snapshots(disk), default=0)
        self._is_making = False

    def is_due(self) -> bool:
        """Whether a snapshot should be made now."""
        return not self._is_making and self._uncovered_bytes() >= self._due_at

    def begin(self) -> None:
        """One is being made."""
        self._is_making = True

    def compact(self) -> int:
        """Has a snapshot made and removes what two of them cover; returns its position, or 0 if there is none.

        `JournalFailedError` if segments could not be removed: then the journal is no longer usable.
        """
        try:
            self._maker.make()
            positions = list_snapshots(self._disk)
            for position in positions[:-SNAPSHOTS_KEPT]:
                remove_if_present(self._disk, snapshot_name(position))
            self._due_at = max(self._limit_bytes, self._size(positions[-1]))
        except (OSError, HoldfastError) as error:
            get_logger().error("snapshot_failed", message=str(error))
            return 0
        if len(positions) >= SNAPSHOTS_KEPT:
            self._journal.remove_segments(positions[-SNAPSHOTS_KEPT])
        return positions[-1]

    def ended(self, position: int) -> None:
        """The next one may be made; after a failure, when the journal has grown by the limit again."""
        self._is_making = False
        if position:
            self._covered = position
        else:
            self._due_at = self._uncovered_bytes() + self._limit_bytes

    def stop(self) -> None:
        """Does not wait for a snapshot that is being made."""
        self._maker.stop()

    def _uncovered_bytes(self) -> int:
        segments = self._journal.segments()
        return sum(info.bytes for info in segments if info.is_sealed and info.last_position > self._covered)

    def _size(self, position: int) -> int:
        file = self._disk.open(snapshot_name(position))
        try:
            return file.size()
        finally:
            file.close()
