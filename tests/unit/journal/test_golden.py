"""Golden files: the bytes of the on-disk format never change."""

import random
from pathlib import Path

import pytest

from holdfast.journal.file import FileJournal
from holdfast.journal.manifest import MANIFEST_NAME
from holdfast.journal.snapshot import list_snapshots, read_snapshot, read_snapshot_header
from holdfast.journal.version import FORMAT_VERSION, version_of
from holdfast_lab.simulation.disk import SimDisk
from tests.golden.journal.generate import BODIES, CHUNKS, CLUSTER_ID, CONFIG, GOLDEN, golden_files

VERSIONS = sorted(path for path in GOLDEN.iterdir() if path.name.startswith("v"))


def _files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def test_writer_produces_the_golden_bytes() -> None:
    """The current writer produces exactly the checked-in files of the current version."""
    assert golden_files() == _files(GOLDEN / f"v{FORMAT_VERSION}")


def test_every_version_has_golden_files() -> None:
    """Every format version has golden files."""
    assert [path.name for path in VERSIONS] == [f"v{number}" for number in range(1, FORMAT_VERSION + 1)]


@pytest.mark.parametrize("directory", VERSIONS, ids=lambda path: path.name)
def test_reader_reads_every_version(directory: Path) -> None:
    """The current reader returns the same frames and snapshot from the files of every version."""
    disk = SimDisk(random.Random(0), _files(directory))
    journal = FileJournal.open(disk, CONFIG, now_ms=0, new_cluster_id=bytes(16))
    frames = list(journal.replay())
    version = int(directory.name.removeprefix("v"))
    assert [(frame.count, frame.digest, frame.digest_version, frame.body) for frame in frames] == [
        (number, number << 56, version, body) for number, body in enumerate(BODIES, start=1)
    ]
    assert (journal.cluster_id, journal.epoch, journal.end_position) == (CLUSTER_ID, 3, 21)
    [position] = list_snapshots(disk)
    assert b"".join(read_snapshot(disk, position)) == b"".join(CHUNKS)
    link = read_snapshot_header(disk, position).link
    assert [frame.body for frame in journal.replay(position, link=link)] == [BODIES[-1]]


@pytest.mark.parametrize("directory", VERSIONS, ids=lambda path: path.name)
def test_opening_leaves_old_files_and_begins_the_present_version(directory: Path) -> None:
    """An opening leaves old segments unchanged, and writes new files and the manifest in the current version."""
    before = _files(directory)
    disk = SimDisk(random.Random(0), before)
    journal = FileJournal.open(disk, CONFIG, now_ms=0, new_cluster_id=bytes(16))
    journal.write(b"new", 1, 5)
    journal.close()
    after = disk.files()
    assert {name: data for name, data in before.items() if name != MANIFEST_NAME}.items() <= after.items()
    [new] = after.keys() - before.keys()
    assert {version_of(after[name]) for name in (new, MANIFEST_NAME)} == {FORMAT_VERSION}
    again = FileJournal.open(SimDisk(random.Random(0), after), CONFIG, now_ms=0, new_cluster_id=bytes(16))
    assert [frame.body for frame in again.replay()] == [*BODIES, b"new"]
