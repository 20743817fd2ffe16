"""Directories of each format version can be opened, verified and continued."""

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.core import events, image
from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.events import Started
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.errors import ReplayDivergedError
from holdfast.journal.segment import segment_names
from holdfast.journal.snapshot import list_snapshots, read_snapshot_header
from holdfast.journal.version import FORMAT_VERSION, version_of
from holdfast.ledger.recovery import recover
from holdfast.ledger.snapshots import take_snapshot
from holdfast.ledger.time_travel import history, verified
from holdfast.topologies.backup import opened_backup
from holdfast.topologies.microservices.services.owner_journal import RecoveredOwner, StateMachine
from holdfast.topologies.microservices.services.owner_restore import owner_state
from holdfast_lab.simulation.disk import SimDisk
from tests.golden.state.generate import BACKUP, CONFIG, GOLDEN, LEDGER, OWNERS, START_MS, job_id

VERSIONS = [f"v{number}" for number in range(1, FORMAT_VERSION + 1)]
LATER_MS = START_MS + 3_600_000


def files_of(version: str, name: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((GOLDEN / version / name).iterdir())}


def disk_of(version: str, name: str) -> SimDisk:
    return SimDisk(random.Random(0), files_of(version, name))


def silent(_done: int, _total: int) -> None:
    """Ignores the progress."""


def recovered_ledger(disk: SimDisk) -> Ledger:
    found = recover(disk, CONFIG, LedgerConfig(), now_ms=LATER_MS, new_cluster_id=bytes(16))
    found.journal.close()
    assert not found.warnings
    return found.ledger


def recovered_owner(kind: str, disk: SimDisk) -> StateMachine:
    machine = OWNERS[kind][0]()
    RecoveredOwner.of(machine, disk, CONFIG, now_ms=LATER_MS, new_cluster_id=bytes(16)).journal.close()
    return machine


@pytest.mark.parametrize("version", VERSIONS)
def test_ledger_of_every_version_is_verified(version: str) -> None:
    """Every frame is replayed and compared with the digest of its version, and the result has the present digest."""
    proof, ledger = verified(DirectoryArchive(disk_of(version, LEDGER)), silent)
    assert (proof.digest, ledger.state.digest_version) == (ledger.digest, DIGEST_VERSION)
    _, present = verified(DirectoryArchive(disk_of(VERSIONS[-1], LEDGER)), silent)
    assert image.full_digest(ledger) == image.full_digest(present)
    assert history(DirectoryArchive(disk_of(version, LEDGER)), job_id(0))


@pytest.mark.parametrize("version", VERSIONS)
def test_ledger_of_every_version_is_upgraded(version: str) -> None:
    """A ledger recovers by snapshot and frames, continues in the present version, and keeps old files unchanged."""
    before = files_of(version, LEDGER)
    disk = SimDisk(random.Random(0), before)
    found = recover(disk, CONFIG, LedgerConfig(), now_ms=LATER_MS, new_cluster_id=bytes(16))
    ledger = found.ledger
    assert not found.warnings
    for epoch in range(2):
        event = Started(LATER_MS, epoch)
        ledger.apply(event)
        found.journal.write(events.join([events.encode_one(event)]), 1, ledger.digest)
    found.journal.close()
    again = recovered_ledger(SimDisk(random.Random(0), disk.files()))
    assert image.full_digest(again) == image.full_digest(ledger)
    files = disk.files()
    assert all(files[name] == before[name] for name in segment_names(list(before)))
    new = [name for name in segment_names(list(files)) if name not in before]
    assert new
    assert {version_of(files[name]) for name in new} == {FORMAT_VERSION}
    assert verified(DirectoryArchive(disk), silent)[1].digest == ledger.digest


@pytest.mark.parametrize("version", VERSIONS)
def test_next_snapshot_is_of_the_present_version(version: str) -> None:
    """A snapshot made from old segments has the present digest version, and a restart can use it."""
    disk = disk_of(version, LEDGER)
    whole = recovered_ledger(disk)
    position = take_snapshot(DirectoryArchive(disk), LedgerConfig())
    assert position == max(list_snapshots(disk))
    header = read_snapshot_header(disk, position)
    assert header.digest_version == DIGEST_VERSION
    assert image.full_digest(recovered_ledger(disk)) == image.full_digest(whole)


@pytest.mark.parametrize("version", VERSIONS)
def test_digest_of_every_version_is_compared(version: str) -> None:
    """A frame whose digest differs from the replayed state is detected in every version."""
    disk, number = disk_of(version, LEDGER), int(version.removeprefix("v"))
    config = replace(CONFIG, digest_version=number)
    body = events.join([events.encode_one(Started(LATER_MS, 1))])
    for wrong in range(2):
        found = recover(disk, config, LedgerConfig(), now_ms=LATER_MS, new_cluster_id=bytes(16))
        found.ledger.state.rehash(number)
        found.journal.write(body, 1, found.ledger.digest + wrong)
        found.journal.close()
    with pytest.raises(ReplayDivergedError, match=f"position {found.journal.end_position} "):
        recovered_ledger(disk)


@pytest.mark.parametrize("kind", OWNERS)
@pytest.mark.parametrize("version", VERSIONS)
def test_owner_of_every_version_is_upgraded(version: str, kind: str) -> None:
    """The journals of the services recover to the same state, by snapshot or by frames alone."""
    state = owner_state(kind, DirectoryArchive(disk_of(version, kind)), silent)
    disk = disk_of(version, kind)
    machine = recovered_owner(kind, disk)
    bare = disk_of(version, kind)
    for position in list_snapshots(bare):
        bare.remove(f"snapshot-{position:020d}.snap")
    present = recovered_owner(kind, disk_of(VERSIONS[-1], kind))
    images = [list(one.image()) for one in (state.machine, machine, recovered_owner(kind, bare), present)]
    assert images[0] == images[1] == images[2] == images[3]
    assert machine.digest_version == DIGEST_VERSION


@pytest.mark.parametrize("version", VERSIONS)
def test_backup_of_every_version_is_proved(version: str, tmp_path: Path) -> None:
    """The digest in the file BACKUP is checked with the function of its format version."""
    folder = tmp_path / BACKUP
    shutil.copytree(GOLDEN / version / BACKUP, folder)
    with opened_backup(folder, folder, lambda _stage: silent) as (backup, _disk):
        assert f"v{backup.format}" == version
