"""Opening, writing, replaying, rolling, closing."""

import random
import threading
from contextlib import suppress
from itertools import pairwise

import pytest

from holdfast.journal.errors import (
    DirectoryLockedError,
    JournalClosedError,
    JournalDamagedError,
    JournalFailedError,
    JournalVersionError,
    PositionRemovedError,
)
from holdfast.journal.pins import pin
from holdfast.journal.port import FRAME_OVERHEAD, JournalConfig
from holdfast.journal.version import DIGEST_VERSION
from holdfast_lab.faults.stalling_disk import Gate, StallingDisk
from holdfast_lab.simulation.disk import SimDisk, SimulatedCrash
from tests.unit.journal.workload import (
    CLUSTER_ID,
    check_contiguous,
    closed_files,
    disk_with,
    empty_disk,
    open_journal,
    segments_of,
    write_frames,
)


def test_new_journal_is_empty() -> None:
    """A new journal has epoch 1, position 0 and the given cluster id."""
    journal = open_journal(empty_disk())
    assert (journal.epoch, journal.end_position, journal.first_position) == (1, 0, 1)
    assert journal.cluster_id == CLUSTER_ID
    assert list(journal.replay()) == []


def test_write_returns_the_last_position_of_its_frame() -> None:
    """Positions count events, not frames."""
    journal = open_journal(empty_disk())
    assert [journal.write(b"a", 3, 0), journal.write(b"b", 1, 0)] == [3, 4]
    assert journal.end_position == 4


def test_frames_come_back_after_reopening() -> None:
    """Replay returns every frame of several segments and epochs in order, with its digest."""
    disk = disk_with(closed_files())
    journal = open_journal(disk)
    frames = list(journal.replay())
    check_contiguous(frames)
    assert frames[-1].last_position == journal.end_position
    assert frames[-1].checksum == journal.end_checksum


def test_replay_includes_frames_written_since_the_opening() -> None:
    """Replay includes the frames written since the journal was opened."""
    journal = open_journal(empty_disk())
    write_frames(journal, 20)
    check_contiguous(list(journal.replay()))
    assert len(list(journal.replay())) == 20


def test_replay_starts_after_any_frame() -> None:
    """A replay from the end of any frame returns exactly the later frames and accepts the right link."""
    journal = open_journal(disk_with(closed_files()))
    frames = list(journal.replay())
    for number, frame in enumerate(frames, start=1):
        rest = list(journal.replay(frame.last_position, link=frame.checksum))
        assert rest == frames[number:]


def test_replay_refuses_another_history() -> None:
    """If the link of the first frame is not the expected one, replay raises and yields nothing."""
    journal = open_journal(disk_with(closed_files()))
    for frame in list(journal.replay())[:-1]:
        with pytest.raises(JournalDamagedError, match="another history"):
            next(journal.replay(frame.last_position, link=frame.checksum ^ 1))


def test_replay_past_the_end_is_refused() -> None:
    """A replay from a position past the end is refused, because the journal must have lost frames."""
    journal = open_journal(disk_with(closed_files()))
    with pytest.raises(JournalDamagedError):
        journal.replay(journal.end_position + 1)


def test_epoch_grows_with_every_opening() -> None:
    """Epochs strictly increase, even if nothing was written."""
    disk = empty_disk()
    epochs = []
    for _ in range(4):
        journal = open_journal(disk)
        epochs.append(journal.epoch)
        journal.close()
    assert epochs == [1, 2, 3, 4]


def test_openings_that_write_nothing_leave_no_files() -> None:
    """Openings that write nothing leave no segments, so that a crash loop does not fill the directory."""
    disk = empty_disk()
    for _ in range(10):
        open_journal(disk)
        disk.kill()
    assert len(segments_of(disk.files())) == 1


def test_journal_rolls_to_new_segments() -> None:
    """A segment above its size is sealed, and the infos describe the chain without gaps."""
    journal = open_journal(empty_disk())
    write_frames(journal, 20)
    infos = journal.segments()
    assert len(infos) > 2
    assert [info.is_sealed for info in infos] == [True] * (len(infos) - 1) + [False]
    assert infos[0].first_position == 1
    for before, after in pairwise(infos):
        assert after.first_position == before.last_position + 1
    assert infos[-1].last_position == journal.end_position


def test_sealed_segments_give_their_reserved_space_back() -> None:
    """Unused reserved space is cut off when a segment is sealed, and at a clean close."""
    disk = empty_disk()
    journal = open_journal(disk)
    write_frames(journal, 20)
    infos = journal.segments()
    journal.close()
    assert {info.name: info.bytes for info in infos} == {
        name: len(data) for name, data in disk.files().items() if name != "MANIFEST"
    }


def test_frame_tells_the_version_of_its_digest() -> None:
    """Replay returns the frames of segments with different digest versions, each with its own version."""
    disk = empty_disk()
    journal = open_journal(disk, JournalConfig(segment_bytes=900, extent_bytes=1024, digest_version=1))
    write_frames(journal, 2)
    journal.close()
    other = open_journal(disk, JournalConfig(segment_bytes=900, extent_bytes=1024, digest_version=2))
    other.write(b"new", 1, 5)
    frames = list(other.replay())
    assert [frame.digest_version for frame in frames] == [1, 1, 2]
    assert frames[-1].digest == 5


def test_unknown_digest_version_is_refused() -> None:
    """A journal with an unknown digest version is refused with that version, and is not changed."""
    disk = empty_disk()
    open_journal(disk, JournalConfig(digest_version=3)).close()
    files = disk.files()
    with pytest.raises(JournalVersionError, match="digest version 3"):
        open_journal(disk)
    assert disk.files() == files


def test_short_writes_are_continued() -> None:
    """Frames become durable as a whole, even if the disk accepts only a part of each write."""
    disk = empty_disk()
    disk.faults.short_write_percent = 90
    journal = open_journal(disk)
    write_frames(journal, 20)
    disk.crash()
    journal = open_journal(disk)
    check_contiguous(list(journal.replay()))
    assert len(list(journal.replay())) == 20


@pytest.mark.parametrize("fault", ["fail_next_sync", "fail_next_write"])
def test_first_failure_poisons_the_journal(fault: str) -> None:
    """After a failed write or sync every call raises JournalFailedError and does not write to the disk."""
    disk = empty_disk()
    journal = open_journal(disk)
    write_frames(journal, 3)
    setattr(disk.faults, fault, True)
    with pytest.raises(JournalFailedError):
        journal.write(b"lost", 1, 0)
    operations = disk.operations
    for call in (
        lambda: journal.write(b"more", 1, 0),
        lambda: journal.reserve(1),
        journal.replay,
        journal.segments,
        lambda: journal.remove_segments(1),
    ):
        with pytest.raises(JournalFailedError):
            call()
    journal.close()
    assert disk.operations == operations


def test_frame_of_a_failed_sync_is_not_claimed() -> None:
    """A frame whose sync failed is lost after a crash, and the frames before it are intact."""
    disk = empty_disk()
    journal = open_journal(disk)
    write_frames(journal, 3)
    end = journal.end_position
    disk.faults.fail_next_sync = True
    with pytest.raises(JournalFailedError):
        journal.write(b"lost", 1, 0)
    disk.crash()
    journal = open_journal(disk)
    assert journal.end_position == end
    check_contiguous(list(journal.replay()))


@pytest.mark.parametrize("seed", range(20))
def test_recovered_frame_is_durable_though_its_sync_failed(seed: int) -> None:
    """A frame that a dead process left in the kernel's cache is either recovered durably or not at all."""
    disk = empty_disk(seed)
    journal = open_journal(disk)
    write_frames(journal, 2)
    end = journal.end_position
    disk.faults.fail_next_sync = True
    with pytest.raises(JournalFailedError):
        write_frames(journal, 1)
    recovered = open_journal(disk.kill())
    assert recovered.end_position > end
    write_frames(recovered, 2)
    end = recovered.end_position
    again = open_journal(disk.crash())
    assert again.end_position == end
    check_contiguous(list(again.replay()))


def test_unsynced_directory_poisons_the_journal() -> None:
    """If a new segment's name may not be durable, nothing more is written to either segment."""
    disk = empty_disk()
    journal = open_journal(disk)
    disk.faults.fail_next_sync_dir = True
    with pytest.raises(JournalFailedError):
        write_frames(journal, 20)
    with pytest.raises(JournalFailedError):
        journal.write(b"more", 1, 0)


def test_second_opening_is_refused_while_the_first_lives() -> None:
    """A second opening of the directory is refused while the first is open."""
    disk = empty_disk()
    journal = open_journal(disk)
    with pytest.raises(DirectoryLockedError):
        open_journal(disk)
    journal.close()
    assert open_journal(disk).epoch == 2


def test_closed_journal_refuses_calls() -> None:
    """After `close` every call raises JournalClosedError, except a second close."""
    journal = open_journal(empty_disk())
    journal.close()
    journal.close()
    with pytest.raises(JournalClosedError):
        journal.write(b"x", 1, 0)


def test_segments_are_removed_up_to_a_position() -> None:
    """Sealed segments are removed as a whole, oldest first, and the remaining frames can be replayed, also later."""
    disk = empty_disk()
    journal = open_journal(disk)
    write_frames(journal, 20)
    infos = journal.segments()
    removed = journal.remove_segments(infos[2].last_position - 1)
    assert removed == [info.name for info in infos[:2]]
    assert journal.first_position == infos[2].first_position
    with pytest.raises(PositionRemovedError):
        journal.replay(infos[1].last_position - 1)
    disk.crash()
    journal = open_journal(disk)
    assert journal.first_position == infos[2].first_position
    check_contiguous(list(journal.replay(infos[1].last_position)), after=infos[1].last_position)


def test_removal_is_not_durable_before_the_snapshot_is() -> None:
    """A removal of segments is durable only after the name of the snapshot is."""
    for seed in range(30):
        for operation in range(1, 12):
            disk = empty_disk(seed)
            journal = open_journal(disk)
            write_frames(journal, 8)
            disk.rename(disk_file(disk, "snapshot.tmp"), "snapshot")
            disk.faults.crash_at_operation = disk.operations + operation
            with suppress(SimulatedCrash):
                journal.remove_segments(journal.end_position)
            names = disk.crash().files()
            assert "snapshot" in names or open_journal(disk).first_position == 1


def disk_file(disk: SimDisk, name: str) -> str:
    """Create a file with durable contents."""
    disk.create(name).sync()
    disk.sync_dir()
    return name


def test_the_segment_being_written_is_never_removed() -> None:
    """The newest segment is never removed, even if a snapshot covers it."""
    journal = open_journal(empty_disk())
    write_frames(journal, 20)
    journal.remove_segments(journal.end_position)
    assert [info.is_sealed for info in journal.segments()] == [False]


def test_pinned_segments_are_kept() -> None:
    """A segment with a pin is not removed until the reader releases the pin."""
    disk = empty_disk()
    journal = open_journal(disk)
    write_frames(journal, 20)
    infos = journal.segments()
    with pin(disk, infos[1].last_position):
        assert journal.remove_segments(journal.end_position) == [infos[0].name]
    assert len(journal.remove_segments(journal.end_position)) == len(infos) - 2


def test_segments_before_a_snapshot_need_not_be_read() -> None:
    """With `verify_after`, damage in a covered segment does not prevent the journal from opening."""
    disk = disk_with(closed_files())
    names = segments_of(disk.files())
    disk.flip_bit(names[0], 8 * 600)
    with pytest.raises(JournalDamagedError):
        open_journal(disk)
    second_first = int(names[1].split("-")[0])
    journal = open_journal(disk, verify_after=second_first - 1)
    check_contiguous(list(journal.replay(second_first - 1)), after=second_first - 1)


def test_default_sizes_agree_with_the_documents() -> None:
    """The default segment size is 64 MiB, and space is reserved in steps of 16 MiB."""
    assert (JournalConfig().segment_bytes, JournalConfig().extent_bytes) == (64 << 20, 16 << 20)
    assert JournalConfig().digest_version == DIGEST_VERSION


def test_segment_without_a_frame_is_not_rolled() -> None:
    """Every sealed segment has at least one frame, however small segments are, so that names are unique."""
    disk = SimDisk(random.Random(1))
    journal = open_journal(disk, JournalConfig(segment_bytes=1, extent_bytes=1_024))
    for _ in range(3):
        assert journal.reserve(FRAME_OVERHEAD + 4)
        journal.write(b"body", 1, 0)
    assert [info.first_position for info in journal.segments()] == [1, 2, 3]


def test_segments_can_be_listed_while_a_roll_waits_for_the_disk() -> None:
    """The loop's thread can list the segments while the writer's thread waits for the disk."""
    gate = Gate()
    journal = open_journal(StallingDisk(empty_disk(), gate))
    write_frames(journal, 3)
    writer = threading.Thread(target=write_frames, args=(journal, 60))
    with gate.shut(on="rename MANIFEST"):
        writer.start()
        gate.is_met.wait()
        assert len(journal.segments()) > 1
        assert journal.first_position == 1
        assert gate.is_met.is_set()
    writer.join()
