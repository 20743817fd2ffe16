"""Recovery against files that are whole and yet wrong."""

import random

import pytest

from holdfast.coordinator.recovery import ReplayDivergedError, recover
from holdfast.core import events
from holdfast.core.ledger import LedgerConfig
from holdfast.journal.port import JournalConfig
from holdfast.testing.disk import SimDisk


def test_replay_that_diverges_is_refused() -> None:
    """A frame whose digest is not that of the state it leads to stops the start."""
    disk = SimDisk(random.Random(1))
    config, ledger_config = JournalConfig(segment_bytes=4_096, extent_bytes=4_096), LedgerConfig()
    recovered = recover(disk, config, ledger_config, now_ms=1, new_cluster_id=bytes(16))
    body = events.join([events.encode_one(events.Started(5, 1))])
    assert recovered.journal.reserve(200)
    recovered.journal.write(body, 1, digest=1234)
    recovered.journal.close()
    with pytest.raises(ReplayDivergedError):
        recover(disk, config, ledger_config, now_ms=2, new_cluster_id=bytes(16))
