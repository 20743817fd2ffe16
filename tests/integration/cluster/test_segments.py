"""Segments: partitions that open, seal and go without delay for the appends of other shards."""

import psycopg
import pytest

from holdfast.journal.errors import JournalDamagedError, PositionRemovedError
from holdfast.topologies.cluster.database.address import DatabaseAddress
from holdfast.topologies.cluster.database.archive import PostgresArchive
from holdfast.topologies.cluster.database.frame_reader import PostgresFrameReader
from holdfast.topologies.cluster.database.frame_writer import PostgresFrameWriter
from holdfast.topologies.cluster.database.registry import PostgresRegistry
from holdfast.topologies.cluster.ports import Append, DatabaseRefusedError, StoredFrame
from tests.integration.cluster.cluster_work import chain, lead, write


@pytest.fixture
def frames(writer: PostgresFrameWriter) -> list[StoredFrame]:
    """Three segments of two frames each; the last is open."""
    frames = chain(*(b"%d" % number for number in range(6)))
    for index, frame in enumerate(frames):
        if index in {2, 4}:
            assert writer.open_segment(frame.first_position, 1, 1_000 + index) == Append.WRITTEN
        write(writer, frame)
    return frames


def read_all(reader: PostgresFrameReader, after: int = 0, bytes_max: int = 1 << 30) -> list[StoredFrame]:
    """Reads to the end."""
    found: list[StoredFrame] = []
    while part := reader.frames(found[-1].last_position if found else after, bytes_max):
        found.extend(part)
    return found


def partitions(admin: psycopg.Connection, shard: int = 0) -> list[str]:
    """Returns the partitions of a shard."""
    of_shard = """
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = %s::regclass ORDER BY 1"""
    found = admin.execute(of_shard, [f"holdfast.frames_{shard}"])
    return [name for (name,) in found.fetchall()]


def test_segments_are_described(writer: PostgresFrameWriter, frames: list[StoredFrame]) -> None:
    """Every segment has its bounds, epoch, time and size, and only the newest is open."""
    found = writer.segments()
    assert [(one.first_position, one.last_position, one.is_sealed) for one in found] == [
        (1, 2, True), (3, 4, True), (5, 6, False)
    ]  # fmt: skip
    assert [one.epoch for one in found] == [0, 1, 1]
    assert [one.created_ms for one in found[1:]] == [1_002, 1_004]
    assert all(one.bytes > 0 for one in found)
    assert len(frames) == 6


@pytest.mark.parametrize("bytes_max", [1, 2, 3, 1 << 30])
def test_frames_are_read_across_segments(
    reader: PostgresFrameReader, frames: list[StoredFrame], bytes_max: int
) -> None:
    """Whatever the size of the parts, a reader gets every frame once and in order."""
    assert read_all(reader, bytes_max=bytes_max) == frames
    assert read_all(reader, after=3, bytes_max=bytes_max) == frames[3:]
    assert len(reader.frames(0, 1)) == 1


def test_frame_that_contains_a_position_is_whole(writer: PostgresFrameWriter, reader: PostgresFrameReader) -> None:
    """Reading past a position inside a frame begins with this frame."""
    frames = chain(b"one", b"two", count=10)
    write(writer, *frames)
    assert reader.frames(4, 1) == frames[:1]
    assert reader.frames(10, 1) == frames[1:]
    assert reader.frames(20, 1) == []


def test_opened_segment_may_be_opened_again(writer: PostgresFrameWriter, reader: PostgresFrameReader) -> None:
    """Opening the newest segment again changes nothing, below a frame it is taken, and past the end it is refused."""
    (frame,) = chain(b"one", count=3)
    write(writer, frame)
    assert writer.open_segment(3, 1, 0) == Append.TAKEN
    assert writer.open_segment(4, 1, 5) == Append.WRITTEN
    assert writer.open_segment(4, 1, 6) == Append.WRITTEN
    assert [one.created_ms for one in writer.segments()][1:] == [5]
    with pytest.raises(DatabaseRefusedError, match="ends at position 3"):
        writer.open_segment(9, 1, 0)
    assert (reader.end_position(), reader.frames(3, 1)) == (3, [])


def test_journal_may_begin_above_the_first_position(
    writer: PostgresFrameWriter, reader: PostgresFrameReader, admin: psycopg.Connection
) -> None:
    """The first segment of an empty journal may begin anywhere, for a journal that is copied without its beginning."""
    assert writer.open_segment(100, 1, 0) == Append.WRITTEN
    assert (reader.first_position(), reader.end_position()) == (100, 99)
    with pytest.raises(PositionRemovedError):
        reader.frames(0, 1)
    writer.remove_segments([], 1)
    assert partitions(admin) == ["frames_0_00000000000000000100"]


def test_removed_segments_drop_their_partitions(
    writer: PostgresFrameWriter, reader: PostgresFrameReader, frames: list[StoredFrame], admin: psycopg.Connection
) -> None:
    """Removed segments are gone for readers, oldest first, and their partitions are dropped."""
    names = [segment.name for segment in writer.segments()]
    assert reader.frames(0, 1) == frames[:1]
    assert writer.remove_segments(names[1:2], 1) == Append.WRITTEN
    assert [one.name for one in writer.segments()] == names, "an older segment is kept"
    assert writer.remove_segments(names, 1) == Append.WRITTEN
    assert partitions(admin) == names[2:]
    assert reader.first_position() == 5
    with pytest.raises(PositionRemovedError):
        reader.frames(1, 1)
    assert reader.frames(4, 1 << 30) == frames[4:]


def test_long_reader_delays_only_the_drop(
    writer: PostgresFrameWriter, frames: list[StoredFrame], admin: psycopg.Connection, cluster: str
) -> None:
    """While a dump reads the frames, a removal takes effect for readers, and a later call drops the partition."""
    names = [segment.name for segment in writer.segments()]
    with psycopg.connect(cluster) as dump:
        dump.execute("SELECT count(*) FROM holdfast.frames")
        assert writer.remove_segments(names[:1], 1) == Append.WRITTEN
        assert len(partitions(admin)) == 3
        assert [one.name for one in writer.segments()] == names[1:]
        write(writer, *chain(b"more", after=frames[-1]))
    assert writer.remove_segments([], 1) == Append.WRITTEN
    assert len(partitions(admin)) == 2


def test_other_shards_append_beside_a_change_of_segments(
    address: DatabaseAddress, registry: PostgresRegistry, frames: list[StoredFrame], cluster: str
) -> None:
    """Neither the opening nor the removal of a segment locks out the appends and reads of another shard."""
    assert lead(registry, shard=1) == 1
    other, reader = PostgresFrameWriter(address, 1), PostgresFrameReader(address, 1)
    with psycopg.connect(cluster) as changing:
        changing.execute("SELECT holdfast.open_segment(0, 1, 7, 0)")
        changing.execute("SELECT holdfast.remove_segments(0, 1, ARRAY['frames_0_00000000000000000001'])")
        assert partitions(changing) == [f"frames_0_{first:020d}" for first in (3, 5, 7)]
        added = chain(b"one", b"two")
        write(other, *added)
        assert reader.frames(0, 1 << 30) == added
        changing.rollback()
    other.close()
    reader.close()
    assert len(frames) == 6


def test_open_segment_waits_for_no_append_of_another_shard(
    writer: PostgresFrameWriter, cluster: str, frames: list[StoredFrame]
) -> None:
    """A segment opens beside the uncommitted append of another shard."""
    with psycopg.connect(cluster) as appending:
        appending.execute("INSERT INTO holdfast.frames VALUES (1, 1, 1, 1, 1, 0, 2, 0, 0, 'x')")
        assert writer.open_segment(7, 1, 0) == Append.WRITTEN
        assert writer.remove_segments([writer.segments()[0].name], 1) == Append.WRITTEN
        appending.rollback()
    assert len(frames) == 6


@pytest.mark.parametrize(
    "change",
    ["body = 'other'", "digest = 5", "count = 2", "epoch = 2", "link = 7", "checksum = 1", "digest_version = 1"],
)
def test_damaged_frame_is_named(
    reader: PostgresFrameReader, frames: list[StoredFrame], admin: psycopg.Connection, change: str
) -> None:
    """A frame with any changed field raises an error that names the shard and the position."""
    admin.execute(f"UPDATE holdfast.frames SET {change} WHERE first_position = 2".encode())  # noqa: S608 - the rows above
    with pytest.raises(JournalDamagedError, match=r"'shard 0'.*position 2.*backup") as damaged:
        read_all(reader)
    assert damaged.value.position == 2
    assert len(frames) == 6


@pytest.mark.parametrize("position", [1, 2, 3, 5])
def test_missing_frame_is_named(
    reader: PostgresFrameReader, frames: list[StoredFrame], admin: psycopg.Connection, position: int
) -> None:
    """A missing frame, at either end of a segment, is damage and not the end of the journal."""
    admin.execute("DELETE FROM holdfast.frames WHERE first_position = %s", [position])
    with pytest.raises(JournalDamagedError, match=rf"shard 0.*position {position}"):
        read_all(reader)
    assert len(frames) == 6


def test_frame_of_another_history_is_named(
    address: DatabaseAddress, frames: list[StoredFrame], admin: psycopg.Connection
) -> None:
    """A frame that is intact but does not follow the one before raises, also across segments."""
    (other,) = chain(b"other", after=chain(b"x", count=2)[0])
    admin.execute("UPDATE holdfast.frames SET body = 'other', checksum = %s, digest = %s, link = %s"
                  " WHERE first_position = 3", [other.checksum, other.digest - (1 << 64), other.link])  # fmt: skip
    archive = PostgresArchive(address, 0)
    with pytest.raises(JournalDamagedError, match="does not follow"):
        list(archive.view().frames())
    archive.close()
    assert len(frames) == 6
