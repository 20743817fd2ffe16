"""Keeps the snapshots of a journal: has them made when they are due, and deletes the files that they replace.

The policy (`snapshot_policy.py`) says when a snapshot is due and which segments may go. A separate process makes the
snapshot, so that the writer of the journal never pauses for it. Only the keeper, in the writer's process, deletes
segments, mostly on another thread: those that the policy lets go and that have no pin, and the oldest covered one if an
event finds no space.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from msgspec import structs

from holdfast.core.condition import Condition
from holdfast.journal.archive import SnapshotStore
from holdfast.journal.errors import JournalError
from holdfast.journal.port import Journal
from holdfast.ledger.group_commit import GroupCommit
from holdfast.ledger.ports import SyncThread
from holdfast.ledger.snapshot_policy import KeeperConfig, StoredSnapshots, is_due, last_removable, uncovered_bytes


class Builder(Protocol):
    """Starts a build (of a snapshot or of indexes) outside of the writer's thread."""

    def start(self, done: Callable[[str], None]) -> None:
        """Starts the work; calls `done` on the writer's thread with the problem, empty on success."""
        ...


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


def stored_in(store: SnapshotStore) -> StoredSnapshots:
    """Lists the snapshots. The writer's thread uses the result: a call to a stalled disk would block it."""
    positions = store.snapshots()
    return StoredSnapshots(positions, store.snapshot_bytes(positions[-1]) if positions else 0, store.free_bytes())


class SnapshotKeeper:
    """Decides when to make a snapshot, and deletes files that snapshots have replaced, one of the two at a time.

    Files are listed and deleted on the thread `aside`, so that a slow disk does not block the writer's thread.
    """

    def __init__(
        self,
        commit: GroupCommit,
        journal: Journal,
        store: SnapshotStore,
        maker: Builder,
        aside: SyncThread,
        config: KeeperConfig,
        stored: StoredSnapshots | None = None,
    ) -> None:
        """`stored` are the snapshots in the store; without it they are listed here, which may block."""
        self._commit = commit
        self._journal = journal
        self._store = store
        self._maker = maker
        self._aside = aside
        self._config = config
        self._is_busy = False
        self.health = SnapshotHealth()
        self._looked_ms = 0
        #: When a snapshot was last started because an event found no space.
        self._pressed_ms = 0
        #: Replaced as a whole, because the thread `aside` reads it again.
        self._snapshots = stored or stored_in(store)
        commit.snapshots = self

    def durable(self, position: int) -> None:
        """Checks, at most every `look_ms`, whether to make a snapshot or to delete files."""
        now_ms = self._commit.writer.log_ms
        if self._is_busy or now_ms - self._looked_ms < self._interval_ms:
            return
        self._looked_ms = now_ms
        # A journal that has failed reports it to the loop itself; after an error of the disk, the next check follows.
        with suppress(JournalError, OSError):
            if is_due(self._config, self._journal.segments(), self._snapshots):
                self._make()
            else:
                self._tidy(now_ms)

    def make_room(self) -> bool:
        """Removes the oldest segment if the snapshots cover it, whatever its age; False if it cannot.

        If it is not covered, a snapshot of the sealed segments is started, so that it can be removed later.
        """
        segments = self._journal.segments()
        oldest = segments[0]
        if oldest.is_sealed and oldest.last_position <= self._snapshots.covered_by_all:
            with suppress(JournalError, OSError):
                return bool(self._journal.remove_segments(oldest.last_position))
            return False
        now_ms = self._commit.writer.served_ms
        is_early = now_ms - self._pressed_ms < self._interval_ms
        if not is_early and not self._is_busy and uncovered_bytes(segments, self._snapshots):
            self._pressed_ms = now_ms
            self._make()
        return False

    @property
    def _interval_ms(self) -> int:
        return self._config.interval_ms(self.health.failed_in_a_row)

    def _make(self) -> None:
        self._is_busy = True
        self._maker.start(self._made)

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
        """Removes superfluous snapshots, and the segments that the policy lets go.

        Runs on the thread `aside`.
        """
        # If the journal failed, the writer's next write fails too, and stops the process. If the directory could
        # not be read, the next check reads it again.
        with suppress(JournalError, OSError):
            self._snapshots = stored_in(self._store)
            for position in self._snapshots.superfluous:
                self._store.remove_snapshot(position)
            self._remove_segments(now_ms)
        return 0

    def _remove_segments(self, now_ms: int) -> None:
        if not self._snapshots.covered_by_all:
            return
        # The space that the removed snapshots took is free now.
        stored = structs.replace(self._snapshots, free_bytes=self._store.free_bytes())
        limit = last_removable(self._config, self._journal.segments(), stored, now_ms)
        if limit >= self._journal.first_position:
            self._journal.remove_segments(limit)
