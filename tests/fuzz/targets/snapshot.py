"""The damaged file of a snapshot: its chunks as they were written, or an error that names the file."""

import random
from functools import cache

from holdfast.journal import JournalVersionError, SnapshotDamagedError, SnapshotHeader, read_snapshot, write_snapshot
from holdfast_lab.simulation.disk import SimDisk

_POSITION = 15
_CHUNKS = (b"chunk one", bytes(64), bytes(range(256)))


@cache
def _written() -> tuple[str, bytes]:
    disk = SimDisk(random.Random(0))
    header = SnapshotHeader(
        digest_version=1, cluster_id=bytes(16), position=_POSITION, link=7, log_time_ms=1_700_000_000_000, digest=5
    )
    name = write_snapshot(disk, header, _CHUNKS)
    return name, disk.files()[name]


def seeds() -> list[bytes]:
    """The file itself."""
    return [_written()[1]]


def fuzz(data: bytes) -> None:
    """Reads the file."""
    name, good = _written()
    disk = SimDisk(random.Random(0), {name: data})
    try:
        chunks = list(read_snapshot(disk, _POSITION))
    except (SnapshotDamagedError, JournalVersionError) as error:
        assert data != good, "an undamaged file was refused"
        assert name in error.message
    else:
        # A valid other header makes it another snapshot, with a checksum of its own.
        assert data[:68] != good[:68] or tuple(chunks) == _CHUNKS
