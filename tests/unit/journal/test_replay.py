"""Readers beside the writer: sealed segments only, verified, in order."""

import random

import pytest

from holdfast.journal.errors import JournalDamagedError, JournalFailedError, PositionRemovedError
from holdfast.journal.replay import read_headers, read_sealed
from holdfast.testing.disk import SimDisk
from tests.unit.journal.workload import check_contiguous, disk_with, empty_disk, open_journal, write_frames


def test_sealed_segments_are_read_beside_the_writer() -> None:
    """A reader that has no lock sees every frame but those of the segment being written."""
    disk = empty_disk()
    journal = open_journal(disk)
    write_frames(journal, 20)
    sealed_end = journal.segments()[-1].first_position - 1
    frames = list(read_sealed(disk))
    check_contiguous(frames)
    assert frames[-1].last_position == sealed_end
    assert list(read_sealed(disk, after=sealed_end)) == []
    assert list(read_sealed(disk, after=frames[3].last_position, link=frames[3].checksum)) == frames[4:]


def test_nothing_is_sealed_in_a_new_directory() -> None:
    """No files, or one segment, give no frames."""
    disk = empty_disk()
    assert list(read_sealed(disk)) == []
    open_journal(disk).write(b"x", 1, 0)
    assert list(read_sealed(disk)) == []
    assert len(read_headers(disk)) == 1


def test_segments_of_two_histories_do_not_mix() -> None:
    """Each segment may be sound by itself; if one does not link to the other, the reader stops there."""
    histories = []
    for body in (b"a" * 500, b"b" * 500):
        disk = empty_disk()
        journal = open_journal(disk)
        for _ in range(4):
            journal.write(body, 1, 0)
        histories.append(disk.files())
    first = min(name for name in histories[0] if name.endswith(".seg"))
    mixed = disk_with({**histories[0], first: histories[1][first]})
    with pytest.raises(JournalDamagedError, match="links to"):
        list(read_sealed(mixed))


def test_removed_positions_are_named() -> None:
    """A reader that comes too late learns from where on it can read."""
    disk = empty_disk()
    journal = open_journal(disk)
    write_frames(journal, 20)
    first = journal.segments()[1].first_position
    journal.remove_segments(first - 1)
    with pytest.raises(PositionRemovedError, match=f"to {first - 1} are no longer"):
        read_sealed(disk)


class _Slow(SimDisk):
    """Lists files that are removed before they can be opened."""

    def names(self) -> list[str]:
        return sorted({*super().names(), *self.listed})

    listed: tuple[str, ...] = ()


def test_segments_removed_under_a_reader_do_not_disturb_it() -> None:
    """A reader whose pin is beyond the removed segments reads on, although it had seen them listed."""
    disk = _Slow(random.Random(0))
    journal = open_journal(disk)
    write_frames(journal, 20)
    infos = journal.segments()
    disk.listed = (infos[0].name, infos[1].name)
    journal.remove_segments(infos[1].last_position)
    frames = list(read_sealed(disk, after=infos[1].last_position))
    check_contiguous(frames, after=infos[1].last_position)
    assert frames


def test_damage_met_while_reading_is_raised() -> None:
    """A bit that turned over since the journal was opened is found by whoever reads it."""
    disk = empty_disk()
    journal = open_journal(disk)
    write_frames(journal, 20)
    name = journal.segments()[1].name
    disk.flip_bit(name, 8 * 600)
    for replay in (read_sealed(disk), journal.replay()):
        with pytest.raises(JournalDamagedError) as caught:
            list(replay)
        assert caught.value.file == name


def test_damage_in_the_segment_being_written_is_raised() -> None:
    """Replay never just ends early: up to the durable end it yields every frame or raises."""
    disk = empty_disk()
    journal = open_journal(disk)
    write_frames(journal, 2)
    disk.flip_bit(journal.segments()[-1].name, 8 * (journal.segments()[-1].bytes - 1))
    with pytest.raises(JournalDamagedError, match="cannot be read"):
        list(journal.replay())


def test_unreadable_file_is_an_error_of_ours() -> None:
    """EIO while reading is reported in the one exception tree."""
    disk = empty_disk()
    journal = open_journal(disk)
    write_frames(journal, 3)
    disk.faults.fail_next_read = True
    with pytest.raises(JournalFailedError, match="could not be read"):
        list(journal.replay())
    assert len(list(journal.replay())) == 3
