"""The policy of snapshots: when one is made, and which segments of the journal may go. No clock, no storage.

Invariants:
- A segment may go only if all kept snapshots cover it: a damaged snapshot costs only time.
- Segments go oldest first: those whose newest event is older than the history window, and those with which the history
  is larger than `history_bytes`, or with which the storage has no space for the next snapshot.
"""

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from holdfast import limits
from holdfast.journal.port import SegmentInfo

SNAPSHOTS_KEPT = 2
#: Each failure in a row doubles the interval between checks, at most this many times: a maker reads a whole journal.
_DOUBLINGS_MAX = 6


class KeeperConfig(msgspec.Struct, frozen=True, kw_only=True):
    """When a snapshot is made, and how much history is kept."""

    snapshot_bytes: int = 256 << 20
    history_ms: int = 7 * 86_400_000
    history_bytes: int = limits.HISTORY_BYTES_DEFAULT
    look_ms: int = 1_000
    #: A snapshot also waits until the journal has grown by this part of the last one: its cost is a fixed share then.
    least_growth: float = 0.0

    def interval_ms(self, failed_in_a_row: int) -> int:
        """Returns the time between two checks."""
        return self.look_ms << min(failed_in_a_row, _DOUBLINGS_MAX)


class StoredSnapshots(msgspec.Struct, frozen=True):
    """The snapshots of a journal, oldest first, and the size of the newest."""

    positions: list[int]
    newest_bytes: int
    #: The free space when they were listed; infinite if the engine knows no limit.
    free_bytes: float

    @property
    def covered(self) -> int:
        """The last position that a snapshot covers."""
        return max(self.positions, default=0)

    @property
    def covered_by_all(self) -> int:
        """The last position that all kept snapshots cover."""
        return self.positions[-SNAPSHOTS_KEPT] if len(self.positions) >= SNAPSHOTS_KEPT else 0

    @property
    def superfluous(self) -> list[int]:
        """The positions of the snapshots that are not kept."""
        return self.positions[:-SNAPSHOTS_KEPT]


def is_due(config: KeeperConfig, segments: Sequence[SegmentInfo], stored: StoredSnapshots) -> bool:
    """Whether enough was written since the last snapshot, or there may soon be no space for another one."""
    uncovered = uncovered_bytes(segments, stored)
    if uncovered >= max(config.snapshot_bytes, config.least_growth * stored.newest_bytes):
        return True
    # The next snapshot is at most this much larger than the last one.
    return uncovered > 0 and stored.free_bytes < 2 * (uncovered + stored.newest_bytes)


def uncovered_bytes(segments: Sequence[SegmentInfo], stored: StoredSnapshots) -> int:
    """Returns the size of the sealed segments that the next snapshot would cover."""
    return sum(info.bytes for info in segments if info.is_sealed and info.last_position > stored.covered)


def last_removable(config: KeeperConfig, segments: Sequence[SegmentInfo], stored: StoredSnapshots, now_ms: int) -> int:
    """Returns the last position of the segments that may go, 0 if none may."""
    past = max(_last_outside_window(config, segments, now_ms), _last_beyond_bounds(config, segments, stored))
    return min(stored.covered_by_all, past)


def _last_outside_window(config: KeeperConfig, segments: Sequence[SegmentInfo], now_ms: int) -> int:
    """Returns the last position before the history window; a segment ends when the next one is created."""
    limit = 0
    for info, following in pairwise(segments):
        if following.created_ms > now_ms - config.history_ms:
            break
        limit = info.last_position
    return limit


def _last_beyond_bounds(config: KeeperConfig, segments: Sequence[SegmentInfo], stored: StoredSnapshots) -> int:
    """Returns the last position to remove so that history is within its limit and the next snapshot has space."""
    limit = 0
    sealed = [info for info in segments if info.is_sealed]
    over = sum(info.bytes for info in sealed) - config.history_bytes
    # A snapshot is written while the previous one is kept, and may be larger.
    short = 2 * stored.newest_bytes - stored.free_bytes
    excess = max(over, short)
    for info in sealed:
        if excess <= 0:
            break
        excess -= info.bytes
        limit = info.last_position
    return limit
