"""A small deterministic journal for the tests of this folder."""

import random

from holdfast.journal.disk import Disk
from holdfast.journal.file import FileJournal
from holdfast.journal.port import Frame, Journal, JournalConfig
from holdfast_lab.simulation.disk import SimDisk

CLUSTER_ID = bytes(range(16))
CONFIG = JournalConfig(segment_bytes=900, extent_bytes=1024)
# For tests that place frames themselves and need no roll between them.
ROOMY = JournalConfig(segment_bytes=1 << 20, extent_bytes=1024)


def open_journal(disk: Disk, config: JournalConfig = CONFIG, *, verify_after: int = 0) -> FileJournal:
    return FileJournal.open(disk, config, now_ms=1_000, new_cluster_id=CLUSTER_ID, verify_after=verify_after)


def empty_disk(seed: int = 0) -> SimDisk:
    return SimDisk(random.Random(seed))


def disk_with(files: dict[str, bytes]) -> SimDisk:
    return SimDisk(random.Random(0), files)


def body_of(number: int) -> bytes:
    """Return the body of the frame that begins with position `number`; some bodies cover several sectors."""
    long = b"=" * 1_200 if number % 4 == 0 else b""
    return f"<{number}>".encode() + bytes(number * 7 % 60) + b"#" * (number * 31 % 97) + long


def write_frames(journal: Journal, count: int) -> None:
    """Write `count` frames, of one to three events each."""
    for _ in range(count):
        first = journal.end_position + 1
        journal.write(body_of(first), 1 + first % 3, first * 1_000)


def check_contiguous(frames: list[Frame], *, after: int = 0) -> None:
    """Raise AssertionError unless `frames` are those that `write_frames` writes, from `after` on."""
    expected = after + 1
    for frame in frames:
        assert frame.first_position == expected
        assert frame.body == body_of(expected)
        assert frame.count == 1 + expected % 3
        assert frame.digest == expected * 1_000
        expected += frame.count


def crashed_files(frames: int = 12) -> dict[str, bytes]:
    """Return the files of a journal of several segments and two epochs whose process was killed."""
    disk = empty_disk()
    journal = open_journal(disk)
    write_frames(journal, frames)
    journal.close()
    journal = open_journal(disk)
    write_frames(journal, frames)
    return disk.kill().files()


def closed_files(frames: int = 12) -> dict[str, bytes]:
    """Return the files of the same journal, closed cleanly."""
    disk = disk_with(crashed_files(frames))
    journal = open_journal(disk)
    write_frames(journal, 3)
    journal.close()
    return disk.files()


def segments_of(files: dict[str, bytes]) -> list[str]:
    return [name for name in sorted(files) if name.endswith(".seg")]
