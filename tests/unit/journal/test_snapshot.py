"""Snapshot files are complete or refused."""

import zlib

import pytest

from holdfast.journal.errors import JournalVersionError, SnapshotDamagedError
from holdfast.journal.snapshot import (
    SnapshotHeader,
    list_snapshots,
    read_snapshot,
    read_snapshot_header,
    snapshot_name,
    write_snapshot,
)
from tests.unit.journal.workload import CLUSTER_ID, disk_with, empty_disk

CHUNKS = [b"first", b"\0" * 40, b"last"]


def header(position: int = 7) -> SnapshotHeader:
    return SnapshotHeader(
        digest_version=1, cluster_id=CLUSTER_ID, position=position, link=11, log_time_ms=13, digest=2**63
    )


def snapshot_files() -> dict[str, bytes]:
    disk = empty_disk()
    write_snapshot(disk, header(), CHUNKS)
    return disk.files()


def test_snapshot_reads_back_chunk_by_chunk() -> None:
    """Reading returns the header and the chunks as written."""
    disk = empty_disk()
    name = write_snapshot(disk, header(), iter(CHUNKS))
    assert name == snapshot_name(7)
    assert read_snapshot_header(disk, 7) == header()
    assert list(read_snapshot(disk, 7)) == CHUNKS


def test_empty_chunks_are_left_out() -> None:
    """Empty chunks are not stored, because a size of zero marks the end, and a snapshot may have no chunks."""
    disk = empty_disk()
    write_snapshot(disk, header(1), [b"", b"a", b""])
    write_snapshot(disk, header(2), [])
    assert list(read_snapshot(disk, 1)) == [b"a"]
    assert list(read_snapshot(disk, 2)) == []


def test_snapshots_are_listed_in_order() -> None:
    """Positions are listed oldest first, without unfinished files."""
    disk = empty_disk()
    for position in (300, 20, 1):
        write_snapshot(disk, header(position), CHUNKS)
    disk.create("snapshot-00000000000000000009.snap.tmp")
    assert list_snapshots(disk) == [1, 20, 300]


def test_every_flipped_bit_is_noticed() -> None:
    """The reader raises for any flipped bit of a snapshot."""
    files = snapshot_files()
    name = snapshot_name(7)
    for bit in range(8 * len(files[name])):
        disk = disk_with(files)
        disk.flip_bit(name, bit)
        with pytest.raises(SnapshotDamagedError):
            list(read_snapshot(disk, 7))


def test_every_prefix_is_noticed() -> None:
    """A snapshot that is truncated at any byte, or has bytes after its end, is damaged."""
    data = snapshot_files()[snapshot_name(7)]
    for other in (*(data[:size] for size in range(len(data))), data + b"\0"):
        with pytest.raises(SnapshotDamagedError):
            list(read_snapshot(disk_with({snapshot_name(7): other}), 7))


def test_left_out_and_swapped_chunks_are_noticed() -> None:
    """A snapshot with missing or swapped chunks is damaged, even if each chunk is intact."""
    disk = empty_disk()
    write_snapshot(disk, header(), [b"aaaa", b"bbbb"])
    data = disk.files()[snapshot_name(7)]
    start = data.index(b"aaaa") - 8
    one, two, rest = data[start : start + 12], data[start + 12 : start + 24], data[start + 24 :]
    for other in (one + rest, two + one + rest):
        with pytest.raises(SnapshotDamagedError):
            list(read_snapshot(disk_with({snapshot_name(7): data[:start] + other}), 7))


def test_snapshot_under_another_name_is_noticed() -> None:
    """A snapshot with the name of another position is damaged."""
    data = snapshot_files()[snapshot_name(7)]
    with pytest.raises(SnapshotDamagedError, match="belongs to"):
        read_snapshot_header(disk_with({snapshot_name(8): data}), 8)


def test_failed_writer_leaves_no_snapshot() -> None:
    """If the source of the chunks fails, neither a snapshot nor a temporary file remains."""

    def chunks() -> list[bytes]:
        raise ValueError("no state")

    disk = empty_disk()
    with pytest.raises(ValueError, match="no state"):
        write_snapshot(disk, header(), (chunk for _ in range(1) for chunk in chunks()))
    assert disk.files() == {}


def test_failed_sync_leaves_no_snapshot() -> None:
    """If the sync fails, the snapshot does not get its final name."""
    disk = empty_disk()
    disk.faults.fail_next_sync = True
    with pytest.raises(OSError, match="Input/output"):
        write_snapshot(disk, header(), CHUNKS)
    assert list_snapshots(disk) == []


def test_newer_snapshot_is_told_from_damage() -> None:
    """A snapshot of a newer version raises JournalVersionError, not a damage error."""
    data = snapshot_files()[snapshot_name(7)]
    newer = data[:8] + bytes.fromhex("00000003 c0ffee00") + data[16:]
    with pytest.raises(SnapshotDamagedError):
        read_snapshot_header(disk_with({snapshot_name(7): newer}), 7)
    forged = newer[:12] + zlib.crc32(newer[:12]).to_bytes(4, "big") + newer[16:]
    with pytest.raises(JournalVersionError):
        read_snapshot_header(disk_with({snapshot_name(7): forged}), 7)
