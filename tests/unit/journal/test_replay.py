"""Readers beside the writer: they read sealed segments, verified and in order."""

import random

import pytest

from holdfast.journal.errors import JournalDamagedError, JournalFailedError, PositionRemovedError
from holdfast.journal.replay import read_headers, read_sealed
from holdfast_lab.simulation.disk import SimDisk
from tests.unit.journal.workload import check_contiguous, disk_with, empty_disk, open_journal, write_frames


def test_sealed_segments_are_read_beside_the_writer() -> None:
    """A reader without a lock reads every frame except those of the segment being written."""
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
    """A directory without segments, or with one, has no sealed frames."""
    disk = empty_disk()
    assert list(read_sealed(disk)) == []
    open_journal(disk).write(b"x", 1, 0)
    assert list(read_sealed(disk)) == []
    assert len(read_headers(disk)) == 1


def test_segments_of_two_histories_do_not_mix() -> None:
    """A reader raises if two valid segments do not link to each other."""
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
    """A read of removed positions raises an error that names them."""
    disk = empty_disk()
    journal = open_journal(disk)
    write_frames(journal, 20)
    first = journal.segments()[1].first_position
    journal.remove_segments(first - 1)
    with pytest.raises(PositionRemovedError, match=f"to {first - 1} are no longer"):
        read_sealed(disk)


class _Slow(SimDisk):
    """A disk that lists files which are removed before they can be opened."""

    def names(self) -> list[str]:
        return sorted({*super().names(), *self.listed})

    listed: tuple[str, ...] = ()


def test_segments_removed_under_a_reader_do_not_disturb_it() -> None:
    """Segments that are removed after they were listed do not disturb a reader that does not need them."""
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
    """A bit that flipped after the journal was opened is detected by a reader."""
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
    """Replay yields every frame up to the durable end or raises, and never ends early."""
    disk = empty_disk()
    journal = open_journal(disk)
    write_frames(journal, 2)
    disk.flip_bit(journal.segments()[-1].name, 8 * (journal.segments()[-1].bytes - 1))
    with pytest.raises(JournalDamagedError, match="cannot be read"):
        list(journal.replay())


def test_unreadable_file_is_an_error_of_ours() -> None:
    """EIO during a read raises JournalFailedError."""
    disk = empty_disk()
    journal = open_journal(disk)
    write_frames(journal, 3)
    disk.faults.fail_next_read = True
    with pytest.raises(JournalFailedError, match="could not be read"):
        list(journal.replay())
    assert len(list(journal.replay())) == 3
