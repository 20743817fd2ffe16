"""Write the canonical journal of the present format version, with the same bytes every time.

    PYTHONPATH=src python -m tests.golden.journal.generate

Run this only for a new format version; the files of older versions are never written again.
"""

import random
from pathlib import Path

from holdfast.journal.file import FileJournal
from holdfast.journal.port import JournalConfig
from holdfast.journal.snapshot import SnapshotHeader, write_snapshot
from holdfast.journal.version import FORMAT_VERSION
from holdfast_lab.simulation.disk import SimDisk

GOLDEN = Path(__file__).parent
CLUSTER_ID = bytes.fromhex("00112233445566778899aabbccddeeff")
# A plain body, zeros, the default mask over whole sectors (which requires another mask), and every byte value.
BODIES = (b"first", bytes(700), b"\xc1" * 1_600, bytes(range(256)), b"fifth", b"last")
CONFIG = JournalConfig(segment_bytes=1_200, extent_bytes=1_024)
CHUNKS = (b"chunk one", bytes(64))


def golden_files() -> dict[str, bytes]:
    """Returns the files of two epochs with several segments, and a snapshot at the end of the first epoch."""
    disk = SimDisk(random.Random(0))
    journal = _open(disk, now_ms=1_700_000_000_000)
    for number, body in enumerate(BODIES[:-1], start=1):
        journal.write(body, number, number << 56)
    write_snapshot(disk, snapshot_header(journal), CHUNKS)
    journal.close()
    journal = _open(disk, now_ms=1_700_000_001_000)
    journal.write(BODIES[-1], len(BODIES), len(BODIES) << 56)
    journal.close()
    return disk.files()


def snapshot_header(journal: FileJournal) -> SnapshotHeader:
    return SnapshotHeader(
        digest_version=CONFIG.digest_version,
        cluster_id=CLUSTER_ID,
        position=journal.end_position,
        link=journal.end_checksum,
        log_time_ms=1_700_000_000_500,
        digest=5 << 56,
    )


def _open(disk: SimDisk, *, now_ms: int) -> FileJournal:
    return FileJournal.open(disk, CONFIG, now_ms=now_ms, new_cluster_id=CLUSTER_ID)


def main() -> None:
    directory = GOLDEN / f"v{FORMAT_VERSION}"
    directory.mkdir(exist_ok=True)
    for name, data in golden_files().items():
        (directory / name).write_bytes(data)


if __name__ == "__main__":
    main()
