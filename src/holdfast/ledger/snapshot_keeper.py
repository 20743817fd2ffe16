"""Keeps the snapshots of a journal: decides when one is made, and deletes the files that it replaces.

A separate process makes the snapshot, so that the writer of the journal never pauses for it. Only the keeper, in the
writer's process, deletes segments, mostly on another thread: segments that both kept snapshots cover and that have no
pin, oldest first, if their newest event is older than the history window, if the history is larger than
`history_bytes`, if the disk has no space for the next snapshot, or if an event finds no space. Two snapshots are kept,
so that a damaged one costs only time.
"""

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Protocol

import msgspec

from holdfast import limits
from holdfast.core.condition import Condition
from holdfast.journal.disk import Disk
from holdfast.journal.errors import JournalError
from holdfast.journal.file import FileJournal
from holdfast.journal.snapshot import list_snapshots, snapshot_bytes, snapshot_name
from holdfast.journal.whole_write import remove_if_present
from holdfast.ledger.group_commit import GroupCommit
from holdfast.ledger.ports import SyncThread

SNAPSHOTS_KEPT = 2
#: Each failure in a row doubles the interval between checks, at most this many times: a maker reads a whole journal.
_DOUBLINGS_MAX = 6


class Builder(Protocol):
    """Starts a build (of a snapshot or of indexes) outside of the writer's thread."""

    def start(self, done: Callable[[str], None]) -> None:
        """Starts the work; calls `done` on the writer's thread with the problem, empty on success."""
        ...


class KeeperConfig(msgspec.Struct, frozen=True, kw_only=True):
    """When a snapshot is made, and how much history is kept."""

    snapshot_bytes: int = 256 << 20
    history_ms: int = 7 * 86_400_000
    history_bytes: int = limits.HISTORY_BYTES_DEFAULT
    look_ms: int = 1_000
    #: A snapshot also waits until the journal has grown by this part of the last one: its cost is a fixed share then.
    least_growth: float = 0.0


class SnapshotHealth:
    """Counts of made and failed snapshots of this process: for metrics, the readiness page and operators."""

    __slots__ = ("failed", "failed_in_a_row", "made", "on_change", "problem")

    def __init__(self) -> None:
        self.made = 0
        self.failed = 0
        self.failed_in_a_row = 0
        #: The problem of the last snapshot; empty if it succeeded.
        self.problem = ""
        #: Called after each finished snapshot, on the writer's thread.
        self.on_change: Callable[[], None] = _ignore

    def ended(self, problem: str) -> None:
        """Counts a finished snapshot: a failure if there is a problem."""
        self.problem = problem
        self.made += not problem
        self.failed += bool(problem)
        self.failed_in_a_row = self.failed_in_a_row + 1 if problem else 0
        self.on_change()

    def conditions(self) -> list[Condition]:
        """Returns the conditions for the operator; none while snapshots succeed."""
        if not self.failed_in_a_row:
            return []
        times = "once" if self.failed_in_a_row == 1 else f"{self.failed_in_a_row} times in a row"
        summary = f"the journal grows, because making a snapshot failed {times}"
        return [Condition(summary, self.problem.rstrip("."))]


def _ignore() -> None:
    """Does nothing."""


class _Snapshots(msgspec.Struct, frozen=True):
    """The snapshots on a disk, oldest first, and the size of the newest."""

    positions: list[int]
    newest_bytes: int
    #: The free space of the disk when they were read: a call to a stalled disk would block the writer's thread.
    free_bytes: int

    @classmethod
    def on(cls, disk: Disk) -> "_Snapshots":
        """Reads the current snapshots."""
        positions = list_snapshots(disk)
        return cls(positions, snapshot_bytes(disk, positions[-1]) if positions else 0, disk.free_bytes())

    @property
    def covered(self) -> int:
        """The last position that a snapshot covers."""
        return max(self.positions, default=0)

    @property
    def covered_twice(self) -> int:
        """The last position that all kept snapshots cover."""
        return self.positions[-SNAPSHOTS_KEPT] if len(self.positions) >= SNAPSHOTS_KEPT else 0


class SnapshotKeeper:
    """Decides when to make a snapshot, and deletes files that snapshots have replaced, one of the two at a time.

    Files are listed and deleted on the thread `aside`, so that a slow disk does not block the writer's thread.
    """

    def __init__(
        self,
        commit: GroupCommit,
        journal: FileJournal,
        disk: Disk,
        maker: Builder,
        aside: SyncThread,
        config: KeeperConfig,
    ) -> None:
        self._commit = commit
        self._journal = journal
        self._disk = disk
        self._maker = maker
        self._aside = aside
        self._config = config
        self._is_busy = False
        self.health = SnapshotHealth()
        self._looked_ms = 0
        #: When a snapshot was last started because an event found no space.
        self._pressed_ms = 0
        #: Replaced as a whole, because the thread `aside` reads it again.
        self._snapshots = _Snapshots.on(disk)
        commit.snapshots = self

    def durable(self, position: int) -> None:
        """Checks, at most every `look_ms`, whether to make a snapshot or to delete files."""
        now_ms = self._commit.writer.log_ms
        wait_ms = self._config.look_ms << min(self.health.failed_in_a_row, _DOUBLINGS_MAX)
        if self._is_busy or now_ms - self._looked_ms < wait_ms:
            return
        self._looked_ms = now_ms
        # A journal that has failed reports it to the loop itself; after an error of the disk, the next check follows.
        with suppress(JournalError, OSError):
            if self._is_due():
                self._make()
            else:
                self._tidy(now_ms)

    def make_room(self) -> bool:
        """Removes the oldest segment if the snapshots cover it, whatever its age; False if it cannot.

        If it is not covered, a snapshot of the sealed segments is started, so that it can be removed later.
        """
        oldest = self._journal.segments()[0]
        if oldest.is_sealed and oldest.last_position <= self._snapshots.covered_twice:
            with suppress(JournalError, OSError):
                return bool(self._journal.remove_segments(oldest.last_position))
            return False
        now_ms = self._commit.writer.served_ms
        is_due = now_ms - self._pressed_ms >= self._config.look_ms << min(self.health.failed_in_a_row, _DOUBLINGS_MAX)
        if is_due and not self._is_busy and self._uncovered_bytes():
            self._pressed_ms = now_ms
            self._make()
        return False

    def _is_due(self) -> bool:
        """Whether enough was written since the last snapshot, or the disk may soon have no space for another one."""
        uncovered, config = self._uncovered_bytes(), self._config
        if uncovered >= max(config.snapshot_bytes, config.least_growth * self._snapshots.newest_bytes):
            return True
        # The next snapshot is at most this much larger than the last one.
        return uncovered > 0 and self._snapshots.free_bytes < 2 * (uncovered + self._snapshots.newest_bytes)

    def _make(self) -> None:
        self._is_busy = True
        self._maker.start(self._made)

    def _uncovered_bytes(self) -> int:
        segments = self._journal.segments()
        return sum(info.bytes for info in segments if info.is_sealed and info.last_position > self._snapshots.covered)

    def _made(self, problem: str) -> None:
        self._is_busy = False
        self.health.ended(problem)
        if not problem and self._commit.writer.is_serving:
            self._tidy(self._commit.writer.log_ms)

    def _tidy(self, now_ms: int) -> None:
        self._is_busy = True
        self._aside.run(lambda: self._tidied(now_ms), self._on_tidied, is_lone=False)

    def _on_tidied(self, result: int | BaseException) -> None:
        self._is_busy = False
        if isinstance(result, BaseException):  # a bug
            self._commit.fail(result)

    def _tidied(self, now_ms: int) -> int:
        """Removes superfluous snapshots, and segments that are covered twice and exceed the history to keep.

        Runs on the thread `aside`.
        """
        # If the journal failed, the writer's next write fails too, and stops the process. If the directory could
        # not be read, the next check reads it again.
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
        """Returns the last position before the history window; a segment ends when the next one is created."""
        limit = 0
        segments = self._journal.segments()
        for info, following in pairwise(segments):
            if following.created_ms > now_ms - self._config.history_ms:
                break
            limit = info.last_position
        return limit

    def _last_beyond_bounds(self) -> int:
        """Returns the last position to remove so that history is within its limit and the next snapshot has space."""
        limit = 0
        sealed = [info for info in self._journal.segments() if info.is_sealed]
        over = sum(info.bytes for info in sealed) - self._config.history_bytes
        # A snapshot is written while the previous one is kept, and may be larger.
        short = 2 * self._snapshots.newest_bytes - self._disk.free_bytes()
        excess = max(over, short)
        for info in sealed:
            if excess <= 0:
                break
            excess -= info.bytes
            limit = info.last_position
        return limit
