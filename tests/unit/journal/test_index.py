"""The index of a segment: searches, reads per search, and damage."""

import random

import pytest

from holdfast.journal.disk import Disk
from holdfast.journal.file import FileJournal
from holdfast.journal.index import (
    PAGE_BYTES,
    IndexDamagedError,
    OpenIndex,
    SegmentIndex,
    build_index,
    index_name,
    read_frame,
)
from holdfast.journal.port import JournalConfig
from holdfast.journal.replay import read_headers
from holdfast.journal.segment import SegmentHeader
from holdfast_lab.simulation.disk import SimDisk
from tests.unit.journal.workload import open_journal

FRAMES = 3_000


def names_of(body: bytes) -> list[bytes]:
    return body.split()


def written() -> tuple[SimDisk, SegmentHeader]:
    """Write a sealed segment in which frame n contains the name `n`, and every tenth also `often`; and a newest one."""
    disk = SimDisk(random.Random(0))
    journal = open_journal(disk, JournalConfig(segment_bytes=1 << 30, extent_bytes=1 << 16))
    for number in range(FRAMES):
        journal.write(b"%d often" % number if number % 10 == 0 else b"%d" % number, 1, 0)
    journal.close()
    open_journal(disk).close()
    return disk, read_headers(disk)[0]


def bodies(disk: Disk, header: SegmentHeader, offsets: list[int]) -> list[bytes]:
    file = disk.open(header.name)
    return [read_frame(file, header, offset).body for offset in offsets]


def test_index_finds_the_frames_of_a_name() -> None:
    """A search returns every frame that contains the name, in order, and hardly any other frames."""
    disk, header = written()
    assert build_index(disk, header, FRAMES, names_of) == FRAMES + FRAMES // 10
    index = SegmentIndex(disk, header.name)
    assert index.last_position == FRAMES
    for number in (0, 1, 17, FRAMES - 1):
        assert any(body.split()[0] == b"%d" % number for body in bodies(disk, header, index.find(disk, b"%d" % number)))
    often = bodies(disk, header, index.find(disk, b"often"))
    assert [body for body in often if b"often" in body] == [b"%d often" % number for number in range(0, FRAMES, 10)]
    assert sum(len(index.find(disk, b"nowhere %d" % number)) for number in range(100)) <= 1


def test_index_in_memory_finds_the_same() -> None:
    """The index in memory returns the same offsets as the file, from full blocks and from the newest entries."""
    disk, header = written()
    build_index(disk, header, FRAMES, names_of)
    filed, held = SegmentIndex(disk, header.name), OpenIndex()
    for offset, frame in _frames(disk, header):
        held.add(names_of(frame), offset)
    assert len(held) == FRAMES + FRAMES // 10
    for name in (b"often", b"0", b"1234", b"nowhere", b"%d" % (FRAMES - 1)):
        assert held.find(name) == filed.find(disk, name)
    for number in range(6_000):
        held.add([b"often", b"x%d" % number], 1_000_000 + number)
    assert held.find(b"often")[-6_000:] == list(range(1_000_000, 1_006_000))
    assert held.find(b"x17") == [1_000_017]


def _frames(disk: Disk, header: SegmentHeader) -> list[tuple[int, bytes]]:
    file, offset, found = disk.open(header.name), 512, []
    while offset < file.size():
        frame = read_frame(file, header, offset)
        found.append((offset, frame.body))
        offset += 48 + len(frame.body)
    return found


def test_offset_above_36_bits_makes_the_index_incomplete() -> None:
    """An offset of more than 36 bits marks the index as incomplete instead of being truncated."""
    held = OpenIndex()
    held.add([b"a"], (1 << 36) - 1)
    assert (held.is_complete, held.find(b"a")) == (True, [(1 << 36) - 1])
    held.add([b"a"], 1 << 36)
    assert not held.is_complete


@pytest.mark.parametrize("at", [0, 9, 20, 60, 90, 100, 110, -1, -PAGE_BYTES])
def test_damaged_index_is_refused(at: int) -> None:
    """Any flipped bit of an index is detected before its entries are used."""
    disk, header = written()
    build_index(disk, header, FRAMES, names_of)
    name = index_name(header.name)
    data = disk.files()[name]
    disk.flip_bit(name, 8 * (at % len(data)))
    with pytest.raises(IndexDamagedError):
        _find_all(disk, header)


def _find_all(disk: Disk, header: SegmentHeader) -> None:
    for number in range(FRAMES):
        SegmentIndex(disk, header.name).find(disk, b"%d" % number)


def test_index_of_another_segment_is_refused() -> None:
    """An index under the name of another segment is refused."""
    disk, header = written()
    build_index(disk, header, FRAMES, names_of)
    other = read_headers(disk)[1].name
    disk.rename(index_name(header.name), index_name(other))
    with pytest.raises(IndexDamagedError):
        SegmentIndex(disk, other)


def test_segment_that_cannot_be_read_gets_no_index() -> None:
    """A segment that cannot be read to its end gets no index, because the index would be incomplete."""
    disk, header = written()
    disk.flip_bit(header.name, 8 * 5_000)
    with pytest.raises(IndexDamagedError):
        build_index(disk, header, FRAMES, names_of)
    assert index_name(header.name) not in disk.files()


def test_index_goes_with_its_segment() -> None:
    """The removal of a segment removes its index, and an opening removes stray and unfinished indexes."""
    disk, header = written()
    build_index(disk, header, FRAMES, names_of)
    journal = open_journal(disk)
    journal.write(b"new", 1, 0)
    assert journal.remove_segments(FRAMES) == [header.name]
    assert not [name for name in disk.names() if name.endswith(".idx")]
    journal.close()
    for name in ("00000000000000000001-0000000001.idx", "00000000000000000001-0000000001.idx.tmp", "theirs.idx"):
        disk.create(name).close()
    open_journal(disk).close()
    assert [name for name in disk.names() if ".idx" in name] == ["theirs.idx"]


def test_offset_without_a_frame_is_refused() -> None:
    """A frame at an offset is returned only if its checksums match."""
    disk, header = written()
    file = disk.open(header.name)
    with pytest.raises(IndexDamagedError):
        read_frame(file, header, 513)
    with pytest.raises(IndexDamagedError):
        read_frame(file, header, file.size() + 7)


def test_last_frame_tells_where_it_is() -> None:
    """`last_frame` is the segment and offset of the last frame written."""
    disk = SimDisk(random.Random(0))
    journal: FileJournal = open_journal(disk, JournalConfig(segment_bytes=900, extent_bytes=1_024))
    told = []
    for number in range(20):
        journal.write(b"body %d" % number * 20, 1, 0)
        told.append(journal.last_frame)
    headers = {header.name: header for header in read_headers(disk)}
    assert len(headers) > 2
    for number, (name, offset) in enumerate(told):
        assert read_frame(disk.open(name), headers[name], offset).body == b"body %d" % number * 20
