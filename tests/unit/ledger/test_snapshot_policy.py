"""The policy of snapshots: when one is due, and which segments may go."""

import math

from holdfast.journal.port import SegmentInfo
from holdfast.ledger.snapshot_policy import KeeperConfig, StoredSnapshots, is_due, last_removable, uncovered_bytes

#: Five segments of ten positions and 1000 bytes, created a second apart; the last one is not sealed.
SEGMENTS = [
    SegmentInfo(f"{number}", 10 * number + 1, 10 * number + 10, 1, 1_000, number < 4, 1_000 * number)
    for number in range(5)
]
NOW_MS = 5_000
#: Keeps all history, and makes a snapshot of two segments.
PATIENT = {"snapshot_bytes": 2_000, "history_ms": 1 << 40, "history_bytes": 1 << 40}


def config(**changed: float) -> KeeperConfig:
    return KeeperConfig(**(PATIENT | changed))  # type: ignore[arg-type]


def stored(*positions: int, newest_bytes: int = 100, free_bytes: float = math.inf) -> StoredSnapshots:
    return StoredSnapshots(list(positions), newest_bytes, free_bytes)


def test_snapshot_is_due_after_an_amount_of_sealed_segments() -> None:
    """The sealed segments past the last snapshot count; the one being written does not."""
    assert uncovered_bytes(SEGMENTS, stored()) == 4_000
    assert uncovered_bytes(SEGMENTS, stored(10, 20)) == 2_000
    assert is_due(config(), SEGMENTS, stored(10, 20))
    assert not is_due(config(), SEGMENTS, stored(10, 30))


def test_snapshot_waits_for_growth_in_proportion_to_the_last_one() -> None:
    """A snapshot of a large state waits until the journal has grown by the configured part of it."""
    assert not is_due(config(least_growth=1.0), SEGMENTS, stored(20, newest_bytes=2_001))
    assert is_due(config(least_growth=0.9), SEGMENTS, stored(20, newest_bytes=2_001))


def test_little_space_makes_a_snapshot_due_early() -> None:
    """A snapshot is made while there is still space for it; an engine without a limit never makes one early."""
    assert is_due(config(), SEGMENTS, stored(30, free_bytes=2_199))
    assert not is_due(config(), SEGMENTS, stored(30, free_bytes=2_200))
    assert not is_due(config(), SEGMENTS, stored(30))
    assert not is_due(config(), SEGMENTS, stored(40, free_bytes=0))


def test_segments_go_only_if_all_kept_snapshots_cover_them() -> None:
    """The older of two snapshots limits the removal, and with a single snapshot nothing goes."""
    bound = config(history_bytes=0)
    assert last_removable(bound, SEGMENTS, stored(), NOW_MS) == 0
    assert last_removable(bound, SEGMENTS, stored(40), NOW_MS) == 0
    assert last_removable(bound, SEGMENTS, stored(5, 20, 40), NOW_MS) == 20


def test_segments_before_the_history_window_go() -> None:
    """A segment goes when the one after it is older than the window."""
    assert last_removable(config(history_ms=3_000), SEGMENTS, stored(40, 41), NOW_MS) == 20
    assert last_removable(config(history_ms=4_001), SEGMENTS, stored(40, 41), NOW_MS) == 0


def test_segments_beyond_the_size_of_history_go() -> None:
    """As many of the oldest segments go as exceed the size, whatever their age."""
    assert last_removable(config(history_bytes=4_000), SEGMENTS, stored(40, 41), NOW_MS) == 0
    assert last_removable(config(history_bytes=3_999), SEGMENTS, stored(40, 41), NOW_MS) == 10
    assert last_removable(config(history_bytes=2_000), SEGMENTS, stored(40, 41), NOW_MS) == 20


def test_segments_go_so_that_the_next_snapshot_finds_space() -> None:
    """The space of two snapshots of the newest size stays free, at the cost of history."""
    assert last_removable(config(), SEGMENTS, stored(40, 41, newest_bytes=1_000, free_bytes=2_000), NOW_MS) == 0
    assert last_removable(config(), SEGMENTS, stored(40, 41, newest_bytes=1_000, free_bytes=500), NOW_MS) == 20


def test_two_snapshots_are_kept() -> None:
    """All but the newest two are superfluous."""
    assert stored(5, 20, 40).superfluous == [5]
    assert stored(20, 40).superfluous == []


def test_interval_grows_with_failures_up_to_a_limit() -> None:
    """Each failure in a row doubles the interval, at most six times."""
    assert [config(look_ms=10).interval_ms(failed) for failed in (0, 1, 6, 7)] == [10, 20, 640, 640]
