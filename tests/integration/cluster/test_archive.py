"""The archive of a shard: views, pins and snapshots, for readers in other processes."""

import math
import threading
from collections.abc import Iterator

import psycopg
import pytest

from holdfast.journal.errors import (
    JournalDamagedError,
    JournalFailedError,
    JournalVersionError,
    PositionRemovedError,
    SnapshotDamagedError,
)
from holdfast.journal.port import Frame
from holdfast.journal.snapshot import SnapshotHeader
from holdfast.topologies.cluster.database.address import DatabaseAddress
from holdfast.topologies.cluster.database.archive import PostgresArchive
from holdfast.topologies.cluster.database.frame_writer import PostgresFrameWriter
from holdfast.topologies.cluster.database.pins import pinned
from holdfast.topologies.cluster.ports import Append, StoredFrame
from tests.integration.cluster.cluster_work import LIMIT_MS, chain, wait_until, write

HEADER = SnapshotHeader(
    digest_version=2, cluster_id=bytes(range(16)), position=7, link=9, log_time_ms=11, digest=(1 << 64) - 1
)
CHUNKS = [b"first", b"\0" * 100_000, b"last"]


@pytest.fixture
def archive(address: DatabaseAddress) -> Iterator[PostgresArchive]:
    """The archive of shard 0."""
    archive = PostgresArchive(address, 0)
    yield archive
    archive.close()


@pytest.fixture
def frames(writer: PostgresFrameWriter) -> list[StoredFrame]:
    """Two segments of two frames of three events each."""
    frames = chain(b"a", b"b", b"c", b"d", count=3)
    write(writer, *frames[:2])
    assert writer.open_segment(7, 1, 0) == Append.WRITTEN
    write(writer, *frames[2:])
    return frames


def bodies(frames: Iterator[Frame]) -> bytes:
    """Returns the bodies of all frames."""
    return b"".join(frame.body for frame in frames)


def chunks_left(admin: psycopg.Connection) -> int:
    """Counts the chunks of snapshots and uploads."""
    ((count,),) = admin.execute("SELECT count(*) FROM holdfast.snapshot_chunks").fetchall()
    return int(count)


def test_view_is_the_journal_at_one_instant(
    archive: PostgresArchive, writer: PostgresFrameWriter, frames: list[StoredFrame]
) -> None:
    """A view yields the frames that were there when it was made, with all their fields."""
    view = archive.view()
    write(writer, *chain(b"later", after=frames[-1]))
    assert (view.first_position, view.end_position, view.epoch) == (1, 12, 1)
    assert list(view.frames()) == [
        Frame(one.first_position, one.count, one.digest, one.body, one.checksum, one.digest_version) for one in frames
    ]
    assert archive.view().end_position == 13


@pytest.mark.parametrize(("after", "expected"), [(0, b"abcd"), (1, b"abcd"), (3, b"bcd"), (6, b"cd"), (11, b"d")])
def test_frames_past_a_position(
    archive: PostgresArchive, frames: list[StoredFrame], after: int, expected: bytes
) -> None:
    """Reading past a position begins with the frame that contains the next one."""
    assert bodies(archive.view().frames(after)) == expected
    assert list(archive.view().frames(12)) == []
    assert len(frames) == 4


def test_link_must_be_that_of_the_frame_before(archive: PostgresArchive, frames: list[StoredFrame]) -> None:
    """A reader that continues behind another history gets an error, wherever it continues."""
    links = {0: 0, 3: frames[0].checksum, 6: frames[1].checksum, 12: frames[3].checksum}
    for after, link in links.items():
        assert bodies(archive.view().frames(after, link=link)) == b"abcd"[after // 3 :]
        with pytest.raises(JournalDamagedError, match=r"another history|does not follow"):
            list(archive.view().frames(after, link=link + 1))


def test_positions_outside_the_journal_raise(
    archive: PostgresArchive, writer: PostgresFrameWriter, frames: list[StoredFrame]
) -> None:
    """Removed positions and positions past the end are different errors."""
    with pytest.raises(JournalDamagedError, match="ends with position 12"):
        archive.view().frames(13)
    view = archive.view()
    assert writer.remove_segments([writer.segments()[0].name], 1) == Append.WRITTEN
    with pytest.raises(PositionRemovedError):
        archive.view().frames(2)
    with pytest.raises(PositionRemovedError):
        list(view.frames())
    assert bodies(archive.view().frames(6, link=frames[1].checksum)) == b"cd"


def test_missing_end_is_damage(archive: PostgresArchive, frames: list[StoredFrame], admin: psycopg.Connection) -> None:
    """A frame that disappears behind a view is damage."""
    view = archive.view()
    admin.execute("DELETE FROM holdfast.frames WHERE first_position = 10")
    with pytest.raises(JournalDamagedError, match="expected frames up to position 12"):
        list(view.frames())
    assert len(frames) == 4


def test_sealed_frames_are_those_before_the_newest_segment(archive: PostgresArchive, frames: list[StoredFrame]) -> None:
    """The frames of the newest segment are left out."""
    assert bodies(archive.sealed_frames()) == b"ab"
    assert bodies(archive.sealed_frames(3, link=frames[0].checksum)) == b"b"
    assert list(archive.sealed_frames(6)) == list(archive.sealed_frames(9)) == []


def test_empty_journal_has_a_view(archive: PostgresArchive) -> None:
    """The view of an empty journal has no frame, and the cluster has its id."""
    view = archive.view()
    assert (view.first_position, view.end_position, view.epoch) == (1, 0, 0)
    assert list(view.frames()) == list(archive.sealed_frames()) == []
    assert (archive.cluster_id(), archive.free_bytes()) == (bytes(range(16)), math.inf)


def test_pin_keeps_segments_until_it_ends(
    archive: PostgresArchive, writer: PostgresFrameWriter, frames: list[StoredFrame]
) -> None:
    """A segment with a pinned position stays until the block ends; a pin behind it does not keep it."""
    name = writer.segments()[0].name
    with archive.pin(6):
        assert writer.remove_segments([name], 1) == Append.WRITTEN
        assert bodies(archive.view().frames()) == b"abcd"
    with archive.pin(7):
        writer.remove_segments([name], 1)
        assert bodies(archive.view().frames(6)) == b"cd"
    assert archive.view().first_position == 7
    assert len(frames) == 4


def test_pin_of_a_dead_reader_expires(
    writer: PostgresFrameWriter, frames: list[StoredFrame], admin: psycopg.Connection
) -> None:
    """A pin that nobody renews keeps nothing after its time."""
    admin.execute("INSERT INTO holdfast.pins VALUES (gen_random_uuid(), 0, 1, clock_timestamp())")
    writer.remove_segments([writer.segments()[0].name], 1)
    assert [one.first_position for one in writer.segments()] == [7]
    assert admin.execute("SELECT FROM holdfast.pins").fetchall() == []
    assert len(frames) == 4


def test_pin_is_renewed(address: DatabaseAddress, admin: psycopg.Connection) -> None:
    """A thread moves the end of a pin while its block runs, and the row is deleted at its end."""

    def end() -> object:
        return admin.execute("SELECT expires_at FROM holdfast.pins").fetchone()

    with pinned(address, 0, 5, lasts_ms=100):
        first = end()
        assert first is not None
        wait_until(lambda: end() != first)
    assert end() is None


def test_pin_waits_for_a_removal(address: DatabaseAddress, frames: list[StoredFrame], cluster: str) -> None:
    """A pin that begins beside a removal is taken after it, so that its reader sees what is left."""
    archive = PostgresArchive(address, 0)
    firsts: list[int] = []

    def read() -> None:
        with archive.pin(1):
            firsts.append(archive.view().first_position)

    with psycopg.connect(cluster) as removing:
        removing.execute("SELECT holdfast.remove_segments(0, 1, ARRAY['frames_0_00000000000000000001'])")
        thread = threading.Thread(target=read)
        thread.start()
        with psycopg.connect(cluster, autocommit=True) as other:
            waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            wait_until(lambda: other.execute(waits).fetchone())
    thread.join()
    archive.close()
    assert firsts == [7]
    assert len(frames) == 4


def test_snapshot_is_read_as_written(archive: PostgresArchive, address: DatabaseAddress) -> None:
    """A snapshot keeps its header and its chunks; empty chunks are left out, and each shard has its own."""
    archive.write_snapshot(HEADER, [CHUNKS[0], b"", *CHUNKS[1:]])
    assert archive.snapshots() == [7]
    assert archive.snapshot_header(7) == HEADER
    assert list(archive.snapshot_chunks(7)) == CHUNKS
    assert archive.snapshot_bytes(7) == 100_009
    other = PostgresArchive(address, 1)
    assert other.snapshots() == []
    other.close()
    with pytest.raises(FileNotFoundError):
        archive.snapshot_header(8)


def test_snapshot_is_replaced_and_removed(archive: PostgresArchive, admin: psycopg.Connection) -> None:
    """A second snapshot at a position takes the place of the first, and a removed one leaves no chunk."""
    archive.write_snapshot(HEADER, CHUNKS)
    archive.write_snapshot(HEADER, CHUNKS[:1])
    assert list(archive.snapshot_chunks(7)) == CHUNKS[:1]
    assert chunks_left(admin) == 1
    archive.remove_snapshot(7, is_durable=True)
    archive.remove_snapshot(7)
    assert (archive.snapshots(), chunks_left(admin)) == ([], 0)


def test_failing_write_leaves_no_snapshot(archive: PostgresArchive, admin: psycopg.Connection) -> None:
    """A snapshot whose chunks fail is not there, and its chunks are deleted."""

    def failing() -> Iterator[bytes]:
        yield CHUNKS[0]
        assert archive.snapshots() == [], "a snapshot is not listed before it is complete"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        archive.write_snapshot(HEADER, failing())
    assert (archive.snapshots(), chunks_left(admin)) == ([], 0)


def test_abandoned_upload_is_deleted(archive: PostgresArchive, admin: psycopg.Connection) -> None:
    """The next write deletes the chunks of a writer that ended long ago, and not those of a living one."""
    for age in ("2 hours", "1 minute"):
        admin.execute(
            """
            WITH made AS (INSERT INTO holdfast.snapshot_uploads
                VALUES (gen_random_uuid(), 0, clock_timestamp() - %s::interval) RETURNING upload)
            INSERT INTO holdfast.snapshot_chunks SELECT upload, 0, 0, 'old' FROM made""",
            [age],
        )
    archive.write_snapshot(HEADER, CHUNKS)
    assert chunks_left(admin) == len(CHUNKS) + 1


def test_upload_that_was_deleted_is_no_snapshot(archive: PostgresArchive, admin: psycopg.Connection) -> None:
    """A writer that was stopped for so long that its chunks were deleted writes no snapshot."""

    def stalling() -> Iterator[bytes]:
        yield CHUNKS[0]
        admin.execute("DELETE FROM holdfast.snapshot_uploads")
        yield CHUNKS[1]

    with pytest.raises(JournalFailedError):
        archive.write_snapshot(HEADER, stalling())
    assert archive.snapshots() == []


@pytest.mark.parametrize(
    ("table", "change", "what"),
    [
        ("snapshot_chunks", "body = 'other' WHERE number = 1", "chunk 1"),
        ("snapshot_chunks", "number = 9 WHERE number = 2", "chunk 2"),
        ("snapshots", "chunks = 2", "of the whole"),
        ("snapshots", "checksum = 2", "of the whole"),
        ("snapshots", "link = 2", "header"),
        ("snapshots", "cluster_id = 'another cluster '", "header"),
        ("snapshots", "digest = 2", "header"),
    ],
)
def test_damaged_snapshot_raises(
    archive: PostgresArchive, admin: psycopg.Connection, table: str, change: str, what: str
) -> None:
    """A snapshot with any changed part raises when that part is read, and is still listed."""
    archive.write_snapshot(HEADER, CHUNKS)
    admin.execute(f"UPDATE holdfast.{table} SET {change}".encode())  # noqa: S608 - the rows above
    with pytest.raises(SnapshotDamagedError, match=what):
        list(archive.snapshot_chunks(7))
    assert archive.snapshots() == [7]


def test_newer_snapshot_is_refused(archive: PostgresArchive) -> None:
    """A snapshot with digests that this version does not know is not damage."""
    newer = SnapshotHeader(digest_version=99, cluster_id=bytes(16), position=8, link=0, log_time_ms=0, digest=0)
    archive.write_snapshot(newer, CHUNKS)
    with pytest.raises(JournalVersionError, match="shard 0 at position 8"):
        archive.snapshot_header(8)


def test_lost_database_is_a_failure_of_the_journal(cluster: str) -> None:
    """Readers that know no database get the error of a journal."""
    archive = PostgresArchive(DatabaseAddress(url=cluster.replace("/t", "/gone_t"), limit_ms=LIMIT_MS), 0)
    for call in (archive.view, archive.cluster_id, archive.snapshots, archive.pin(1).__enter__):
        with pytest.raises(JournalFailedError):
            call()
    with pytest.raises(JournalFailedError):
        archive.write_snapshot(HEADER, CHUNKS)
