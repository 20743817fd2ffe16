"""Snapshots by replay: made beside the coordinator, which never pauses for them.

A maker, in a process of its own, replays sealed segments onto the snapshot before and writes the next one. It holds
only the jobs that the segments can change; all others pass from file to file (see `core/image_part.py`). The digest
that the coordinator wrote with each frame is compared on the way, and the finished file is read back and its digest
computed from all jobs in it; a mismatch is loud, and nothing is deleted because of it.

Only the keeper, in the coordinator's process, deletes, mostly on a thread beside the coordinator's: segments that both
kept snapshots cover and that nobody has pinned, oldest first, if their newest event is older than the history window,
if history is larger than `history_bytes`, if the disk could not take the next snapshot, or if an event finds no room.
Two snapshots are kept, so that damage to one costs time and nothing else.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Protocol

import msgspec

from holdfast import limits
from holdfast.core.condition import Condition
from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.events import AnyEvent
from holdfast.core.image_part import ImageFacts, ImagePart, Needs, examine
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.errors import HoldfastError
from holdfast.journal.disk import Disk
from holdfast.journal.errors import JournalDamagedError, JournalError, SnapshotDamagedError
from holdfast.journal.file import FileJournal
from holdfast.journal.pins import pin
from holdfast.journal.port import Frame
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
from holdfast.ledger.coordinator import Coordinator
from holdfast.ledger.ports import SyncThread
from holdfast.ledger.recovery import apply_frame, decoded

SNAPSHOTS_KEPT = 2
#: A maker may always use this much memory for jobs; less would only make it slow.
PART_BYTES_MIN = 32 << 20
#: After each failure in a row the next look comes twice as late, so often at most: a maker reads a whole journal.
_DOUBLINGS_MAX = 6


class SnapshotMismatchError(JournalError):
    """What was written does not give back the state that it was written from."""


class Maker(Protocol):
    """Starts `take_snapshot` somewhere beside the coordinator."""

    def start(self, done: Callable[[str], None]) -> None:
        """Calls `done` on the coordinator's thread with the problem, empty if there was none."""
        ...


def take_snapshot(disk: Disk, config: LedgerConfig, part_bytes: int = PART_BYTES_MIN) -> int:
    """Makes a snapshot of everything sealed; returns its position, or 0 if there is nothing new.

    It goes forward in steps of frames whose jobs take about `part_bytes` of memory. Each step is a whole snapshot, and
    replaces the one of the step before. Pins what it reads, so nothing is deleted under it. A failure leaves the last
    step and changes nothing else.
    """
    base = newest = _newest_good(disk)
    with pin(disk, base.position + 1 if base else 1):
        position, link = (base.position, base.link) if base else (0, None)
        frames = _FrameQueue(read_sealed(disk, after=position, link=link))
        while header := _advance(disk, newest, frames, config, part_bytes):
            if newest is not None and newest is not base:
                remove_if_present(disk, newest.name)
            newest = header
            gc.collect()  # a ledger refers to itself, and the next one needs its memory
    return newest.position if newest is not None and newest is not base else 0


class _FrameQueue:
    """Frames in order; the next one can be looked at before it is taken."""

    def __init__(self, frames: Iterator[Frame]) -> None:
        self._frames = frames
        self.next = next(frames, None)

    def take(self) -> Frame:
        """The next one, which there is."""
        frame, self.next = self.next, next(self._frames, None)
        assert frame is not None
        return frame


class _Step(msgspec.Struct, frozen=True):
    """Frames of one digest version that are applied together, and what they need of the snapshot before."""

    frames: list[Frame]
    needs: Needs

    @classmethod
    def of(cls, frames: _FrameQueue, part_bytes: int) -> "_Step | None":
        """As many of the next frames as fit into the memory, at least one; None at the end."""
        taken, needs = list[Frame](), Needs()
        while frames.next is not None and (not taken or frames.next.digest_version == taken[0].digest_version):
            frame = frames.take()
            taken.append(frame)
            needs.bytes += len(frame.body)
            for event in decoded(frame):
                needs.add(event)
            if needs.bytes >= part_bytes:
                break
        return cls(taken, needs) if taken else None


def failure_text(error: HoldfastError) -> str:
    """What a failure means to the operator of a server that goes on serving: first the consequence, then the cause.

    A snapshot is made of the segments that the next start replays, so it fails over the same damage as that start.
    """
    if isinstance(error, JournalDamagedError):
        return (
            f"do not restart the server, its next start would be refused: {error.file!r} is damaged at offset"
            f" {error.offset}, position {error.position}"
        )
    return error.message


def _newest_good(disk: Disk) -> SnapshotHeader | None:
    """The newest snapshot whose every byte is as it was written; None without any."""
    for position in reversed(list_snapshots(disk)):
        with suppress(SnapshotDamagedError, msgspec.MsgspecError):
            header = read_snapshot_header(disk, position)
            if examine(read_snapshot(disk, position), header.digest_version) == _facts_of(header):
                return header
    return None


def _advance(
    disk: Disk, before: SnapshotHeader | None, frames: _FrameQueue, config: LedgerConfig, part_bytes: int
) -> SnapshotHeader | None:
    """Writes the snapshot that the next frames lead to, and reads it back; None if there are no more frames."""
    step = _Step.of(frames, part_bytes)
    if step is None:
        return None
    if before is None:
        part = ImagePart(Ledger(config))
    else:
        source, version = partial(read_snapshot, disk, before.position), step.frames[0].digest_version
        facts = _facts_of(before) if before.digest_version == version else examine(source(), version)
        part = ImagePart.load(source, step.needs, facts, config)
    ledger = part.ledger
    for frame in step.frames:
        apply_frame(ledger, frame)
    part.rehash(DIGEST_VERSION)
    header = SnapshotHeader(
        digest_version=DIGEST_VERSION,
        cluster_id=read_headers(disk)[0].cluster_id,
        position=ledger.position,
        link=step.frames[-1].checksum,
        log_time_ms=ledger.book.last_ms,
        digest=ledger.digest,
    )
    write_snapshot(disk, header, part.dump())
    if examine(read_snapshot(disk, header.position), DIGEST_VERSION) != _facts_of(header):
        disk.remove(header.name)
        disk.sync_dir()
        raise SnapshotMismatchError(f"the snapshot at position {header.position} did not read back as it was written")
    return header


def _facts_of(header: SnapshotHeader) -> ImageFacts:
    return ImageFacts(header.position, header.digest, header.digest_version)


class KeeperConfig(msgspec.Struct, frozen=True):
    """When a snapshot is worth making, and how far back history reaches."""

    snapshot_bytes: int = 256 << 20
    history_ms: int = 7 * 86_400_000
    history_bytes: int = limits.HISTORY_BYTES_DEFAULT
    look_ms: int = 1_000


class SnapshotHealth:
    """How the snapshots of this process ended: for metrics, for the readiness page and for operators."""

    __slots__ = ("failed", "failed_in_a_row", "made", "problem")

    def __init__(self) -> None:
        self.made = 0
        self.failed = 0
        self.failed_in_a_row = 0
        #: Of the last one; empty if it was made.
        self.problem = ""

    def ended(self, problem: str) -> None:
        """Counts one end: a failure if there is a problem."""
        self.problem = problem
        self.made += not problem
        self.failed += bool(problem)
        self.failed_in_a_row = self.failed_in_a_row + 1 if problem else 0

    def conditions(self) -> list[Condition]:
        """What an operator should know; nothing while snapshots succeed."""
        if not self.failed_in_a_row:
            return []
        times = "once" if self.failed_in_a_row == 1 else f"{self.failed_in_a_row} times in a row"
        summary = f"the journal grows, because making a snapshot failed {times}"
        return [Condition(summary, self.problem.rstrip("."))]


class _Snapshots(msgspec.Struct, frozen=True):
    """The snapshots on a disk, oldest first, and the size of the newest."""

    positions: list[int]
    newest_bytes: int

    @classmethod
    def on(cls, disk: Disk) -> "_Snapshots":
        """Those that there are now."""
        positions = list_snapshots(disk)
        return cls(positions, snapshot_bytes(disk, positions[-1]) if positions else 0)

    @property
    def covered(self) -> int:
        """Up to where one covers the journal."""
        return max(self.positions, default=0)

    @property
    def covered_twice(self) -> int:
        """Up to where all that are kept do."""
        return self.positions[-SNAPSHOTS_KEPT] if len(self.positions) >= SNAPSHOTS_KEPT else 0


class SnapshotKeeper:
    """Decides when to make a snapshot, and deletes what snapshots have made superfluous.

    One of the two at a time. Files are listed and deleted on the thread `aside`, because a disk that stalls must not
    keep the coordinator from its sockets.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        journal: FileJournal,
        disk: Disk,
        maker: Maker,
        aside: SyncThread,
        config: KeeperConfig,
    ) -> None:
        self._coordinator = coordinator
        self._journal = journal
        self._disk = disk
        self._maker = maker
        self._aside = aside
        self._config = config
        self._is_busy = False
        self.health = SnapshotHealth()
        self._looked_ms = 0
        #: When a snapshot was last asked for because an event found no room.
        self._pressed_ms = 0
        #: Replaced as a whole: it is looked at anew on the thread `aside`.
        self._snapshots = _Snapshots.on(disk)
        coordinator.observers.append(self)
        coordinator.make_room = self.make_room

    def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
        """Nothing to do before it is durable."""

    def bug(self, command: object, error: Exception) -> None:
        """Not the keeper's concern."""

    def durable(self, position: int) -> None:
        """Looks at the sizes now and then."""
        now_ms = self._coordinator.ledger.book.last_ms
        wait_ms = self._config.look_ms << min(self.health.failed_in_a_row, _DOUBLINGS_MAX)
        if self._is_busy or now_ms - self._looked_ms < wait_ms:
            return
        self._looked_ms = now_ms
        if self._is_due():
            self._make()
        else:
            self._tidy(now_ms)

    def make_room(self) -> bool:
        """Removes the oldest segment that snapshots cover, whatever its age; False if there is none to be had.

        Then a snapshot is made of what is sealed, so that there is one to be had later.
        """
        oldest = self._journal.segments()[0]
        if oldest.is_sealed and oldest.last_position <= self._snapshots.covered_twice:
            with suppress(JournalError, OSError):
                return bool(self._journal.remove_segments(oldest.last_position))
            return False
        now_ms = self._coordinator.time.now().served_ms
        is_due = now_ms - self._pressed_ms >= self._config.look_ms << min(self.health.failed_in_a_row, _DOUBLINGS_MAX)
        if is_due and not self._is_busy and self._uncovered_bytes():
            self._pressed_ms = now_ms
            self._make()
        return False

    def _is_due(self) -> bool:
        """Whether enough was written since the last snapshot, or a disk that fills up may soon not take another one."""
        uncovered = self._uncovered_bytes()
        if uncovered >= self._config.snapshot_bytes:
            return True
        # What was written since bounds how much larger than the last one it can be.
        return uncovered > 0 and self._disk.free_bytes() < 2 * (uncovered + self._snapshots.newest_bytes)

    def _make(self) -> None:
        self._is_busy = True
        self._maker.start(self._made)

    def _uncovered_bytes(self) -> int:
        segments = self._journal.segments()
        return sum(info.bytes for info in segments if info.is_sealed and info.last_position > self._snapshots.covered)

    def _made(self, problem: str) -> None:
        self._is_busy = False
        self.health.ended(problem)
        if not problem and self._coordinator.is_serving:
            self._tidy(self._coordinator.ledger.book.last_ms)

    def _tidy(self, now_ms: int) -> None:
        self._is_busy = True
        self._aside.run(lambda: self._tidied(now_ms), self._on_tidied, is_lone=False)

    def _on_tidied(self, result: int | BaseException) -> None:
        self._is_busy = False
        if isinstance(result, BaseException):
            raise result

    def _tidied(self, now_ms: int) -> int:
        """Removes snapshots beyond those kept, and segments that are covered twice and more than is to be kept.

        Runs on the thread `aside`.
        """
        # A journal that failed here says so again to the loop, which stops the process; a directory that could not be
        # read is read again at the next look.
        with suppress(JournalError, OSError):
            found = self._snapshots = _Snapshots.on(self._disk)
            for position in found.positions[:-SNAPSHOTS_KEPT]:
                remove_if_present(self._disk, snapshot_name(position))
            if found.covered_twice:
                past = max(self._last_outside_window(now_ms), self._last_beyond_bounds())
                limit = min(found.covered_twice, past)
                if limit >= self._journal.first_position:
                    self._journal.remove_segments(limit)
        return 0

    def _last_outside_window(self, now_ms: int) -> int:
        """The last position of the newest segment that ended before the window; the next one's birth dates its end."""
        limit = 0
        segments = self._journal.segments()
        for info, following in pairwise(segments):
            if following.created_ms > now_ms - self._config.history_ms:
                break
            limit = info.last_position
        return limit

    def _last_beyond_bounds(self) -> int:
        """The last position of the newest segment that must go so that history and the next snapshot have room."""
        limit = 0
        sealed = [info for info in self._journal.segments() if info.is_sealed]
        over = sum(info.bytes for info in sealed) - self._config.history_bytes
        # A snapshot is written beside the one before it, and may be larger.
        short = 2 * self._snapshots.newest_bytes - self._disk.free_bytes()
        excess = max(over, short)
        for info in sealed:
            if excess <= 0:
                break
            excess -= info.bytes
            limit = info.last_position
        return limit
