"""Every engine gives readers the same frames, snapshots and pins through the port `JournalArchive`."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from holdfast.journal.archive import JournalArchive
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.errors import JournalDamagedError, PositionRemovedError
from holdfast.journal.memory import MemoryJournal
from holdfast.journal.port import Journal
from holdfast.journal.snapshot import SnapshotHeader
from tests.unit.journal.memory_archive import MemoryArchive
from tests.unit.journal.workload import CLUSTER_ID, check_contiguous, empty_disk, open_journal, write_frames


class Engine(NamedTuple):
    """A journal with its writer, its readers, and the removal of frames up to a position."""

    journal: Journal
    archive: JournalArchive
    remove: Callable[[int], object]


def directory() -> Engine:
    disk = empty_disk()
    journal = open_journal(disk)
    return Engine(journal, DirectoryArchive(disk), journal.remove_segments)


def memory() -> Engine:
    journal = MemoryJournal(cluster_id=CLUSTER_ID)
    archive = MemoryArchive(journal)
    return Engine(journal, archive, archive.remove)


@pytest.fixture(params=[directory, memory])
def engine(request: pytest.FixtureRequest) -> Engine:
    """A journal of twelve frames."""
    engine: Engine = request.param()
    write_frames(engine.journal, 12)
    return engine


def header(position: int) -> SnapshotHeader:
    return SnapshotHeader(digest_version=1, cluster_id=CLUSTER_ID, position=position, link=5, log_time_ms=6, digest=7)


def test_view_has_every_durable_frame(engine: Engine) -> None:
    """A view begins and ends where the journal does, and its frames can be read from any position on."""
    view = engine.archive.view()
    frames = list(view.frames())
    check_contiguous(frames)
    assert (view.first_position, view.end_position, view.epoch) == (1, frames[-1].last_position, 1)
    assert view.end_position == engine.journal.end_position
    assert list(view.frames(frames[3].last_position, link=frames[3].checksum)) == frames[4:]
    assert engine.archive.cluster_id() == CLUSTER_ID


def test_view_is_one_instant(engine: Engine) -> None:
    """Frames that are written after a view was made are in the next view only."""
    view, end = engine.archive.view(), engine.journal.end_position
    write_frames(engine.journal, 2)
    assert (view.end_position, list(view.frames())[-1].last_position) == (end, end)
    assert engine.archive.view().end_position == engine.journal.end_position


def test_view_refuses_another_history(engine: Engine) -> None:
    """A view raises if its frames do not continue the frame with the given checksum, or end before the position."""
    first, *_ = engine.archive.view().frames()
    with pytest.raises(JournalDamagedError):
        list(engine.archive.view().frames(first.last_position, link=first.checksum ^ 1))
    with pytest.raises(JournalDamagedError):
        list(engine.archive.view().frames(engine.journal.end_position + 1))


def test_sealed_frames_are_a_part_of_the_view(engine: Engine) -> None:
    """Sealed frames are the first frames of the journal, and can be read on from any of them."""
    sealed, durable = list(engine.archive.sealed_frames()), list(engine.archive.view().frames())
    assert sealed
    assert sealed == durable[: len(sealed)]
    assert list(engine.archive.sealed_frames(sealed[2].last_position, link=sealed[2].checksum)) == sealed[3:]
    assert list(engine.archive.sealed_frames(sealed[-1].last_position)) == []


def test_pin_keeps_frames_from_its_position_on(engine: Engine) -> None:
    """A pinned frame is not removed until the block ends; a removed one raises PositionRemovedError."""
    first, second, *_ = engine.archive.view().frames()
    with engine.archive.pin(second.first_position):
        engine.remove(engine.journal.end_position)
        assert next(engine.archive.view().frames(first.last_position)) == second
    engine.remove(engine.journal.end_position)
    assert engine.archive.view().first_position > second.first_position
    with pytest.raises(PositionRemovedError):
        list(engine.archive.view().frames(first.last_position))


def test_snapshots_are_read_as_they_were_written(engine: Engine) -> None:
    """Snapshots are listed oldest first, with header, chunks and size; a removed one is gone."""
    archive = engine.archive
    assert archive.snapshots() == []
    archive.write_snapshot(header(20), [b"a" * 100, b"", b"b"])
    archive.write_snapshot(header(3), [])
    assert archive.snapshots() == [3, 20]
    assert archive.snapshot_header(20) == header(20)
    assert (list(archive.snapshot_chunks(20)), list(archive.snapshot_chunks(3))) == ([b"a" * 100, b"b"], [])
    assert archive.snapshot_bytes(20) >= 101
    archive.remove_snapshot(20)
    archive.remove_snapshot(20)
    archive.remove_snapshot(3, is_durable=True)
    assert archive.snapshots() == []


def test_snapshot_that_fails_leaves_none(engine: Engine) -> None:
    """An error of the chunks ends the snapshot, which is not listed then."""

    def failing() -> Iterator[bytes]:
        yield b"a"
        raise LookupError

    with pytest.raises(LookupError):
        engine.archive.write_snapshot(header(20), failing())
    assert engine.archive.snapshots() == []


def test_removal_of_a_directory_is_durable_on_request() -> None:
    """After a power cut, a snapshot that was removed durably is gone."""
    disk = empty_disk()
    archive = DirectoryArchive(disk)
    archive.write_snapshot(header(3), [b"a"])
    archive.remove_snapshot(3, is_durable=True)
    disk.crash()
    assert archive.snapshots() == []


def test_free_space_of_a_directory_is_that_of_its_disk() -> None:
    """A full disk has no free space."""
    disk = empty_disk()
    disk.faults.free_bytes = 0
    assert DirectoryArchive(disk).free_bytes() == 0
