"""Reserved bytes can always be written, and a full disk recovers when space is freed."""

import random
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.journal.errors import JournalFullError
from holdfast.journal.file import FileJournal
from holdfast.journal.frame import FRAME_OVERHEAD
from holdfast.journal.port import JournalConfig
from holdfast.journal.segment import HEADER_BYTES
from holdfast_lab.simulation.disk import SimDisk
from tests.unit.journal.workload import CONFIG, check_contiguous, empty_disk, open_journal, write_frames


def test_full_disk_refuses_a_grant_and_changes_nothing() -> None:
    """Without space `reserve` returns False, and the journal remains usable."""
    disk = empty_disk()
    journal = open_journal(disk)
    disk.faults.free_bytes = 100
    before = disk.files()
    assert not journal.reserve(5_000)
    assert disk.files() == before
    assert disk.faults.free_bytes == 100


def test_grant_succeeds_once_space_is_back() -> None:
    """After a refusal the same call succeeds as soon as the disk has space."""
    disk = empty_disk()
    journal = open_journal(disk)
    disk.faults.free_bytes = 0
    assert not journal.reserve(5_000)
    disk.faults.free_bytes = 50_000
    assert journal.reserve(5_000)
    assert journal.write(b"x" * (5_000 - FRAME_OVERHEAD), 1, 0) == 1


def test_last_bytes_of_a_disk_are_granted_exactly() -> None:
    """If a whole extent does not fit, the exact size is granted if it fits."""
    disk = empty_disk()
    journal = open_journal(disk)
    disk.faults.free_bytes = 700
    assert not journal.reserve(701)
    assert journal.reserve(700)
    assert journal.write(b"x" * (700 - FRAME_OVERHEAD), 1, 0) == 1
    assert disk.faults.free_bytes == 0


def test_granted_bytes_stay_writable_on_a_full_disk() -> None:
    """Reserved frames can be written on a full disk, also past the size of the segment."""
    disk = empty_disk()
    journal = open_journal(disk)
    assert journal.reserve(3_000)
    disk.faults.free_bytes = 0
    for _ in range(3_000 // (100 + FRAME_OVERHEAD)):
        journal.write(b"x" * 100, 1, 0)
    assert len(journal.segments()) == 1
    assert journal.segments()[0].bytes > CONFIG.segment_bytes
    assert len(list(journal.replay())) == journal.end_position


def test_journal_rolls_again_once_space_is_back() -> None:
    """A segment that exceeded its size for lack of space is sealed when there is space again."""
    disk = empty_disk()
    journal = open_journal(disk)
    assert journal.reserve(3_000)
    disk.faults.free_bytes = 0
    write_frames(journal, 8)
    disk.faults.free_bytes = 100_000
    write_frames(journal, 20)
    assert len(journal.segments()) > 2
    check_contiguous(list(journal.replay()))


def test_grant_without_spare_bytes_succeeds_on_a_nearly_full_disk() -> None:
    """On a nearly full disk a grant with spare bytes is refused while one without them succeeds."""
    disk = empty_disk()
    journal = open_journal(disk)
    disk.faults.free_bytes = 1_000
    assert not journal.reserve(600, spare=500)
    assert journal.reserve(500, spare=500)
    assert not journal.reserve(1, spare=500)
    assert journal.reserve(500)
    assert not journal.reserve(1)


def test_released_bytes_can_be_granted_again() -> None:
    """Released bytes can be granted again."""
    disk = empty_disk()
    journal = open_journal(disk)
    disk.faults.free_bytes = 1_000
    assert journal.reserve(1_000)
    assert not journal.reserve(400)
    journal.release(400)
    assert journal.reserve(400)


def test_unreserved_frame_is_refused_on_a_full_disk_without_harm() -> None:
    """An unreserved write raises JournalFullError, uses no granted byte, and leaves the journal usable."""
    disk = empty_disk()
    journal = open_journal(disk)
    assert journal.reserve(200)
    disk.faults.free_bytes = 0
    with pytest.raises(JournalFullError):
        journal.write(b"x" * 5_000, 1, 0)
    assert journal.write(b"x" * (200 - FRAME_OVERHEAD), 1, 0) == 1


def test_no_segment_goes_while_the_manifest_is_behind() -> None:
    """If a roll could not update the manifest for lack of space, no segment is removed until it is updated."""
    disk = empty_disk()
    journal = open_journal(disk)
    assert journal.reserve(2 * CONFIG.extent_bytes - HEADER_BYTES)
    disk.faults.free_bytes = 0
    smallest = FRAME_OVERHEAD + 1
    journal.write(bytes(2 * CONFIG.extent_bytes - HEADER_BYTES - smallest - FRAME_OVERHEAD), 1, 0)
    disk.faults.free_bytes = HEADER_BYTES + smallest
    journal.write(b"x", 1, 0)
    assert len(journal.segments()) == 2
    assert journal.remove_segments(1) == []
    disk.faults.free_bytes = 1_000
    assert len(journal.remove_segments(1)) == 1
    disk.faults.free_bytes = None
    journal = open_journal(disk.crash())
    assert (journal.first_position, journal.end_position) == (2, 2)


class _Meddler(SimDisk):
    """A disk that grants more bytes and then becomes full when a new segment gets its name."""

    journal: FileJournal | None = None

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        if self.journal is not None and new.endswith(".seg"):
            assert self.journal.reserve(30 * (100 + FRAME_OVERHEAD))
            self.faults.free_bytes = 0
            self.journal = None


def _taken_back(seed: int) -> tuple[SimDisk, FileJournal]:
    """Return a journal that has just removed a new segment and then written a frame."""
    disk = _Meddler(random.Random(seed))
    journal = open_journal(disk)
    while journal.segments()[-1].bytes < CONFIG.segment_bytes:
        journal.write(b"g" * 100, 1, 0)
    assert journal.reserve(100 + FRAME_OVERHEAD)
    disk.journal = journal
    journal.write(b"g" * 100, 1, 0)
    assert len(journal.segments()) == 1, "the roll must be undone"
    return disk, journal


def test_grants_made_during_a_roll_hold() -> None:
    """If a new segment cannot hold the bytes granted meanwhile, it is removed and the old segment is kept."""
    disk, journal = _taken_back(0)
    for _ in range(30):
        journal.write(b"g" * 100, 1, 0)
    end = journal.end_position
    disk.faults.free_bytes = None
    assert open_journal(disk.crash()).end_position == end


@pytest.mark.parametrize("seed", range(10))
def test_segment_that_was_taken_back_stays_away(seed: int) -> None:
    """After a crash a removed new segment does not reappear beside the frames in the old segment."""
    disk, journal = _taken_back(seed)
    end = journal.end_position
    disk.faults.free_bytes = None
    assert open_journal(disk.crash()).end_position == end


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["reserve", "write", "fill", "free"]), st.integers(1, 1_500)), max_size=60))
def test_promised_bytes_are_always_writable(steps: list[tuple[str, int]]) -> None:
    """Granted bytes can be written after any sequence of grants, frames, rolls and changes of free space."""
    disk = empty_disk()
    journal = open_journal(disk)
    promised: list[int] = []
    for step, size in steps:
        if step == "reserve" and journal.reserve(size + FRAME_OVERHEAD):
            promised.append(size)
        elif step == "write" and promised:
            journal.write(b"w" * promised.pop(0), 1, 0)
        elif step == "fill":
            disk.faults.free_bytes = size
        elif step == "free":
            disk.faults.free_bytes = None
    for size in promised:
        journal.write(b"w" * size, 1, 0)


def test_reserving_beside_writing_is_safe() -> None:
    """The accounting is correct if one thread reserves while another writes over many rolls."""
    disk = empty_disk()
    journal = open_journal(disk, JournalConfig(segment_bytes=4_000, extent_bytes=2_000))
    size = 200
    frames = 600

    def reserve_all() -> None:
        for _ in range(frames):
            assert journal.reserve(size)

    reserver = Thread(target=reserve_all)
    reserver.start()
    for _ in range(frames):
        journal.write(b"t" * (size - FRAME_OVERHEAD), 1, 0)
    reserver.join()
    assert journal.end_position == frames
    used = sum(info.bytes - HEADER_BYTES for info in journal.segments())
    assert used == frames * size
    assert len(list(journal.replay())) == frames


def test_full_disk_is_asked_once_for_space_ahead() -> None:
    """Extending ahead of need on a full disk costs one attempt for an eighth of an extent, and fails no write."""
    disk = empty_disk()
    journal = open_journal(disk, JournalConfig(segment_bytes=1 << 20, extent_bytes=4_096))
    assert journal.reserve(3_000)
    disk.faults.free_bytes = 0
    before = disk.operations
    for _ in range(5):
        journal.write(b"x" * 10, 1, 0)
    writes = 5 * 2  # each is written and synced
    assert disk.operations - before == writes + 1
