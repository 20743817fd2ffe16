"""Which snapshot a coordinator starts from."""

from dataclasses import replace

from holdfast.core.ledger import LedgerConfig
from holdfast.journal.snapshot import list_snapshots, read_snapshot, read_snapshot_header, snapshot_name, write_snapshot
from holdfast.ledger.recovery import restore
from tests.unit.coordinator.test_recovery_progress import filled_disk


def test_snapshot_whose_header_and_state_differ_is_passed_over() -> None:
    """A start compares position and digest in the header of a snapshot with those of its state, and says so aloud."""
    disk = filled_disk()
    (position,) = list_snapshots(disk)
    header, chunks = read_snapshot_header(disk, position), list(read_snapshot(disk, position))
    disk.remove(snapshot_name(position))
    write_snapshot(disk, replace(header, digest=header.digest ^ 1), chunks)
    restored = restore(disk, LedgerConfig(), proves_digest=False)
    assert restored.ledger.position == 0
    assert restored.warnings == [f"snapshot at position {position} was passed over: its header and its state differ"]
