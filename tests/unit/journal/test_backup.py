"""Copies of a journal beside its writer, and journals that begin with a restored state."""

import random
from typing import get_args

import pytest

from holdfast.errors import FailedPreconditionError
from holdfast.journal.backup import CopiedJournal, copy_journal
from holdfast.journal.directory_marks import MarkedDirectoryError, restoring
from holdfast.journal.disk import Disk
from holdfast.journal.errors import JournalDamagedError
from holdfast.journal.new_journal import PER_MS, Origin, begin
from holdfast.journal.reader import JournalReader
from holdfast.journal.snapshot import list_snapshots, read_snapshot
from holdfast_lab.simulation.disk import CrashMoment, SimDisk, SimulatedCrash
from tests.unit.journal.workload import CONFIG, ROOMY, check_contiguous, empty_disk, open_journal, write_frames

NOW_MS = 1_800_000_000_000


def copied(source: Disk, target: Disk) -> CopiedJournal:
    return copy_journal(source, target, (), lambda _done, _total: None)


def begun(disk: SimDisk, now_ms: int = NOW_MS) -> Origin:
    origin = Origin.at(now_ms, cluster_id=b"another journal!", position=40, token=7, epoch=3)
    with restoring(disk):
        begin(disk, origin, [b"state"], digest_version=CONFIG.digest_version, digest=5, log_time_ms=now_ms)
    return origin


def test_copy_ends_with_the_last_frame_that_was_there() -> None:
    """The copy contains neither reserved space nor frames that the writer adds later."""
    source, target = empty_disk(), empty_disk(1)
    journal = open_journal(source)
    write_frames(journal, 9)
    made = copied(source, target)
    assert made.position == journal.end_position
    write_frames(journal, 9)
    frames = list(JournalReader(target).frames())
    check_contiguous(frames)
    assert frames[-1].last_position == made.position
    assert len(target.files()[made.files[-2].name]) == made.files[-2].bytes


def test_frame_that_is_being_written_is_left_out() -> None:
    """An incomplete frame at the end is not copied."""
    source, target = empty_disk(), empty_disk(1)
    journal = open_journal(source, ROOMY)
    write_frames(journal, 3)
    end = journal.end_position
    files = source.files()
    newest = max(name for name in files if name.endswith(".seg"))
    write_frames(journal, 1)
    later = source.files()
    torn = dict(later)
    half = next(i for i, (a, b) in enumerate(zip(files[newest], later[newest], strict=False)) if a != b) + 30
    torn[newest] = later[newest][:half] + bytes(len(later[newest]) - half)
    made = copied(SimDisk(random.Random(2), torn), target)
    assert made.position == end
    check_contiguous(list(JournalReader(target).frames()))


def test_copying_begins_anew_if_a_file_goes_under_it() -> None:
    """If a segment disappears because its removal began before the pin, the copy is restarted."""

    class Removing(SimDisk):
        is_over = False

        def open(self, name: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - a fault
            if name.endswith(".seg") and not self.is_over:
                self.is_over = True
                raise FileNotFoundError(name)
            return super().open(name)

    plain, target = empty_disk(), empty_disk(1)
    journal = open_journal(plain)
    write_frames(journal, 5)
    made = copied(Removing(random.Random(3), plain.files()), target)
    assert made.position == journal.end_position


def test_nothing_is_removed_while_it_is_copied() -> None:
    """During the copy a pin at the first position prevents the removal of segments."""
    source = empty_disk()
    journal = open_journal(source)
    write_frames(journal, 12)
    held: list[list[str]] = []

    class Watching(SimDisk):
        def create(self, name: str):  # type: ignore[no-untyped-def]  # noqa: ANN202
            held.append(journal.remove_segments(journal.end_position))
            return super().create(name)

    copied(source, Watching(random.Random(1)))
    assert held
    assert not any(held)
    assert journal.remove_segments(journal.end_position)


def test_journal_that_lost_its_beginning_and_has_no_snapshot_is_refused() -> None:
    """A journal without its beginning and without a snapshot is not copied, because it could not be restored."""
    source = empty_disk()
    journal = open_journal(source)
    write_frames(journal, 12)
    assert journal.remove_segments(journal.end_position)
    with pytest.raises(JournalDamagedError, match="no good snapshot"):
        copied(source, empty_disk(1))


def test_begun_journal_goes_on_past_everything() -> None:
    """A restored journal opens with a higher epoch at the position of its state, and accepts frames."""
    disk = empty_disk()
    origin = begun(disk)
    journal = open_journal(disk, verify_after=origin.floor)
    assert (journal.first_position, journal.end_position) == (origin.floor + 1, origin.floor)
    assert (journal.cluster_id, journal.epoch) == (b"another journal!", NOW_MS // 1_000 + 1)
    write_frames(journal, 3)
    journal.close()
    assert list_snapshots(disk) == [origin.floor]
    assert b"".join(read_snapshot(disk, origin.floor)) == b"state"
    assert len(list(open_journal(disk).replay(origin.floor, link=0))) == 3


def test_origin_is_past_the_backup_and_past_every_line_before_it() -> None:
    """The origin follows from the clock, or from the end of the backup if that is higher."""
    cluster = bytes(16)
    late = Origin.at(NOW_MS, cluster_id=cluster, position=10, token=10, epoch=1)
    later = Origin.at(NOW_MS + 1, cluster_id=cluster, position=10, token=10, epoch=1)
    assert later.floor - late.floor == PER_MS
    behind = Origin.at(1, cluster_id=cluster, position=late.floor, token=late.floor + 7, epoch=late.epoch)
    assert (behind.floor, behind.epoch) == (late.floor + 8, late.epoch + 1)
    assert later.floor < 1 << 53


@pytest.mark.parametrize("now_ms", [-1, 0, 1 << 60])
def test_impossible_clock_is_refused(now_ms: int) -> None:
    """A clock before 1970 or after 2248 is refused, because positions and epochs are derived from it."""
    with pytest.raises(FailedPreconditionError, match="clock"):
        Origin.at(now_ms, cluster_id=bytes(16), position=1, token=1, epoch=1)


def test_power_cut_leaves_a_complete_journal_or_one_marked_as_incomplete() -> None:
    """After a power cut the directory is empty, marked as incomplete, or a complete journal."""
    whole = empty_disk()
    floor = begun(whole).floor
    refused = 0
    for operation in range(1, whole.operations + 1):
        for moment in get_args(CrashMoment):
            disk = empty_disk(operation)
            disk.faults.crash_at_operation, disk.faults.crash_moment = operation, moment
            with pytest.raises(SimulatedCrash):
                begun(disk)
            after = disk.crash()
            names = after.names()
            try:
                journal = open_journal(after, verify_after=floor)
            except MarkedDirectoryError:
                refused += 1
                continue
            assert not names or journal.end_position == floor, (operation, moment, names)
    assert refused > whole.operations
