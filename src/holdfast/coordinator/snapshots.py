"""Snapshots by replay: made beside the coordinator, which never pauses for them.

A maker, in a process of its own, replays sealed segments onto the snapshot before and writes the next one. The digest
that the coordinator wrote with each frame is compared on the way, and the finished file is read back into a ledger and
compared whole; a mismatch is loud, and nothing is deleted because of it.

Only the keeper, in the coordinator, deletes: segments that a snapshot covers, that nobody has pinned, and whose newest
event is older than the history window. Two snapshots are kept, so that damage to one costs time and nothing else.
"""

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Protocol

import msgspec

from holdfast.coordinator.loop import Coordinator
from holdfast.coordinator.recovery import apply_frame, restore
from holdfast.core import image
from holdfast.core.book import DIGEST_VERSION
from holdfast.core.events import AnyEvent
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.journal.disk import Disk
from holdfast.journal.errors import JournalError
from holdfast.journal.file import FileJournal
from holdfast.journal.pins import pin
from holdfast.journal.replay import read_headers, read_sealed
from holdfast.journal.snapshot import (
    SnapshotHeader,
    list_snapshots,
    read_snapshot,
    snapshot_name,
    write_snapshot,
)
from holdfast.journal.writing import remove_if_present

SNAPSHOTS_KEPT = 2
#: After each failure in a row the next look comes twice as late, so often at most: a maker reads a whole journal.
_DOUBLINGS_MAX = 6


class SnapshotMismatchError(JournalError):
    """What was written does not give back the state that it was written from."""


class Maker(Protocol):
    """Starts `take_snapshot` somewhere beside the coordinator."""

    def start(self, done: Callable[[bool], None]) -> None:
        """Calls `done` on the coordinator's thread with whether a snapshot was made; a maker that dies made none."""
        ...


def take_snapshot(disk: Disk, config: LedgerConfig) -> int:
    """Makes a snapshot of everything sealed; returns its position, or 0 if there is nothing new.

    Pins what it reads, so nothing is deleted under it. A failure leaves no snapshot and changes nothing else.
    """
    restored = restore(disk, config)
    ledger, link = restored.ledger, restored.link
    before = ledger.position
    with pin(disk, before + 1):
        for frame in read_sealed(disk, digest_version=DIGEST_VERSION, after=before, link=link):
            apply_frame(ledger, frame)
            link = frame.checksum
        if ledger.position == before:
            return 0
        assert link is not None
        header = SnapshotHeader(
            digest_version=DIGEST_VERSION,
            cluster_id=read_headers(disk)[0].cluster_id,
            position=ledger.position,
            link=link,
            log_time_ms=ledger.book.last_ms,
            digest=ledger.digest,
        )
        write_snapshot(disk, header, image.dump(ledger))
    _check(disk, ledger)
    return ledger.position


def _check(disk: Disk, ledger: Ledger) -> None:
    again = image.load(read_snapshot(disk, ledger.position), ledger.config)
    if image.full_digest(again) != image.full_digest(ledger):
        disk.remove(snapshot_name(ledger.position))
        disk.sync_dir()
        raise SnapshotMismatchError(f"the snapshot at position {ledger.position} did not read back as it was written")


class KeeperConfig(msgspec.Struct, frozen=True):
    """When a snapshot is worth making, and how far back history reaches."""

    snapshot_bytes: int = 256 << 20
    history_ms: int = 7 * 86_400_000
    look_ms: int = 1_000


class SnapshotKeeper:
    """Decides when to make a snapshot, and deletes what snapshots have made superfluous."""

    def __init__(
        self, coordinator: Coordinator, journal: FileJournal, disk: Disk, maker: Maker, config: KeeperConfig
    ) -> None:
        self._coordinator = coordinator
        self._journal = journal
        self._disk = disk
        self._maker = maker
        self._config = config
        self._is_making = False
        self._failures = 0
        self._looked_ms = 0
        self._covered = max(list_snapshots(disk), default=0)
        coordinator.observers.append(self)

    def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
        """Nothing to do before it is durable."""

    def bug(self, command: object, error: Exception) -> None:
        """Not the keeper's concern."""

    def durable(self, position: int) -> None:
        """Looks at the sizes now and then."""
        now_ms = self._coordinator.ledger.book.last_ms
        if now_ms - self._looked_ms < self._config.look_ms << min(self._failures, _DOUBLINGS_MAX):
            return
        self._looked_ms = now_ms
        if not self._is_making and self._uncovered_bytes() >= self._config.snapshot_bytes:
            self._is_making = True
            self._maker.start(self._made)
        elif not self._is_making:
            self._tidy(now_ms)

    def _uncovered_bytes(self) -> int:
        segments = self._journal.segments()
        return sum(info.bytes for info in segments if info.is_sealed and info.last_position > self._covered)

    def _made(self, is_made: bool) -> None:  # noqa: FBT001 - the port says so
        self._is_making = False
        self._failures = 0 if is_made else self._failures + 1
        if is_made and self._coordinator.is_serving:
            self._covered = max(list_snapshots(self._disk), default=0)
            self._tidy(self._coordinator.ledger.book.last_ms)

    def _tidy(self, now_ms: int) -> None:
        """Removes snapshots beyond those kept, and segments that are covered twice and past the window."""
        # An observer must not raise. A journal that failed here says so again to the loop, which stops the process; a
        # directory that could not be read is read again at the next look.
        with suppress(JournalError, OSError):
            positions = list_snapshots(self._disk)
            for position in positions[:-SNAPSHOTS_KEPT]:
                remove_if_present(self._disk, snapshot_name(position))
            if len(positions) >= SNAPSHOTS_KEPT:
                limit = min(positions[-SNAPSHOTS_KEPT], self._last_outside_window(now_ms))
                if limit >= self._journal.first_position:
                    self._journal.remove_segments(limit)

    def _last_outside_window(self, now_ms: int) -> int:
        """The last position of the newest segment that ended before the window; the next one's birth dates its end."""
        limit = 0
        segments = self._journal.segments()
        for info, following in pairwise(segments):
            if following.created_ms > now_ms - self._config.history_ms:
                break
            limit = info.last_position
        return limit
