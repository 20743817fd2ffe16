"""Recovery from files that are intact but wrong, and from power cuts."""

import random

import pytest

from holdfast.core import events
from holdfast.core.ledger import LedgerConfig
from holdfast.journal.errors import ReplayDivergedError
from holdfast.journal.file import FileJournal
from holdfast.journal.port import JournalConfig
from holdfast.ledger.recovery import recover
from holdfast_lab.simulation.disk import SimDisk


def test_replay_that_diverges_is_refused() -> None:
    """A frame whose digest differs from that of the replayed state stops the start."""
    disk = SimDisk(random.Random(1))
    config, ledger_config = JournalConfig(segment_bytes=4_096, extent_bytes=4_096), LedgerConfig()
    recovered = recover(disk, config, ledger_config, now_ms=1, new_cluster_id=bytes(16))
    body = events.join([events.encode_one(events.Started(5, 1))])
    assert recovered.journal.reserve(200)
    recovered.journal.write(body, 1, digest=1234)
    recovered.journal.close()
    with pytest.raises(ReplayDivergedError):
        recover(disk, config, ledger_config, now_ms=2, new_cluster_id=bytes(16))


@pytest.mark.parametrize("seed", range(8))
def test_segments_are_removed_without_gaps(seed: int) -> None:
    """After a power cut right after a removal, the remaining segments are contiguous."""
    disk = SimDisk(random.Random(seed))
    config = JournalConfig(segment_bytes=1_024, extent_bytes=1_024)
    journal = FileJournal.open(disk, config, now_ms=1, new_cluster_id=bytes(16))
    for _ in range(12):
        assert journal.reserve(600)
        journal.write(b"x" * 500, 1, 0)
    limit = journal.end_position - 2
    assert len(journal.remove_segments(limit)) > 2
    disk.crash()
    journal = FileJournal.open(disk, config, now_ms=2, new_cluster_id=bytes(16), verify_after=lambda: limit)
    positions = [frame.first_position for frame in journal.replay(journal.first_position - 1)]
    assert positions == list(range(journal.first_position, 13))
