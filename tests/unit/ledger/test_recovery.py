"""The choice of the snapshot at the start of a coordinator."""

from dataclasses import replace

from holdfast.core.ledger import LedgerConfig
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.snapshot import list_snapshots, read_snapshot, read_snapshot_header, snapshot_name, write_snapshot
from holdfast.ledger.recovery import restore
from tests.unit.ledger.test_recovery_progress import filled_disk


def test_snapshot_whose_header_and_state_differ_is_passed_over() -> None:
    """A start skips a snapshot whose header and state differ in position or digest, and returns a warning."""
    disk = filled_disk()
    (position,) = list_snapshots(disk)
    header, chunks = read_snapshot_header(disk, position), list(read_snapshot(disk, position))
    disk.remove(snapshot_name(position))
    write_snapshot(disk, replace(header, digest=header.digest ^ 1), chunks)
    restored = restore(DirectoryArchive(disk), LedgerConfig(), proves_digest=False)
    assert restored.ledger.position == 0
    assert restored.warnings == [f"snapshot at position {position} was skipped: its header and its state differ"]
