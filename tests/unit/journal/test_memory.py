"""The journal in memory behaves like the one on disk for its callers."""

from collections.abc import Callable

import pytest

from holdfast.journal.errors import (
    JournalClosedError,
    JournalDamagedError,
    JournalFullError,
    PositionRemovedError,
)
from holdfast.journal.frame import FRAME_OVERHEAD
from holdfast.journal.memory import MemoryJournal
from holdfast.journal.port import Journal
from tests.unit.journal.workload import empty_disk, open_journal


def on_disk(bytes_max: int | None = None) -> Journal:
    disk = empty_disk()
    journal = open_journal(disk)
    disk.faults.free_bytes = bytes_max
    return journal


def in_memory(bytes_max: int | None = None) -> Journal:
    return MemoryJournal(bytes_max=bytes_max)


Make = Callable[..., Journal]
both = pytest.mark.parametrize("make", [on_disk, in_memory])


@both
def test_frames_are_replayed_in_order(make: Make) -> None:
    """Replay returns positions, counts, digests and bodies, and can start after any frame."""
    journal = make()
    assert [journal.write(b"a", 2, 10), journal.write(b"b", 1, 11), journal.write(b"c", 3, 12)] == [2, 3, 6]
    seen = [(frame.first_position, frame.count, frame.digest, frame.body) for frame in journal.replay()]
    assert seen == [(1, 2, 10, b"a"), (3, 1, 11, b"b"), (4, 3, 12, b"c")]
    assert [frame.body for frame in journal.replay(2)] == [b"b", b"c"]
    assert list(journal.replay(6)) == []
    assert (journal.first_position, journal.end_position, journal.epoch) == (1, 6, 1)


@both
def test_links_are_checked(make: Make) -> None:
    """A replay with a wrong link, or from past the end, is refused."""
    journal = make()
    journal.write(b"a", 1, 0)
    checksum = journal.end_checksum
    journal.write(b"b", 1, 0)
    assert len(list(journal.replay(1, link=checksum))) == 1
    with pytest.raises(JournalDamagedError):
        list(journal.replay(1, link=checksum ^ 1))
    with pytest.raises(JournalDamagedError):
        list(journal.replay(3))


@both
def test_room_is_granted_up_to_the_cap(make: Make) -> None:
    """Granted bytes, which include the overhead of frames, can be written, and bytes above the limit cannot."""
    journal = make(1_000)
    assert not journal.reserve(1_001)
    assert not journal.reserve(600, spare=500)
    assert journal.reserve(1_000)
    assert not journal.reserve(1)
    with pytest.raises(JournalFullError):
        journal.write(b"x" * 1_000, 1, 0)
    journal.release(100)
    assert journal.reserve(100)
    assert journal.write(b"x" * (1_000 - FRAME_OVERHEAD), 1, 0) == 1


@both
def test_closed_journal_refuses(make: Make) -> None:
    """After `close` calls to write or reserve raise JournalClosedError."""
    journal = make()
    journal.close()
    for call in (
        lambda: journal.write(b"x", 1, 0),
        lambda: journal.reserve(1),
        journal.segments,
        journal.replay,
    ):
        with pytest.raises(JournalClosedError):
            call()


def test_forgotten_frames_cannot_be_replayed() -> None:
    """Removal discards whole frames and frees their space."""
    journal = MemoryJournal(bytes_max=2 * (FRAME_OVERHEAD + 10))
    journal.write(b"a" * 10, 1, 0)
    journal.write(b"b" * 10, 1, 0)
    assert not journal.reserve(1)
    assert journal.remove_segments(2) == ["memory"]
    assert journal.first_position == 2
    with pytest.raises(PositionRemovedError):
        journal.replay(0)
    assert [frame.body for frame in journal.replay(1)] == [b"b" * 10]
    assert journal.reserve(FRAME_OVERHEAD + 10)
    assert journal.segments()[0].bytes == FRAME_OVERHEAD + 10
