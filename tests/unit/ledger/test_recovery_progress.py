"""The progress of a recovery, and the end of one that is aborted."""

import random

import pytest

from holdfast.core import events
from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.ledger import LedgerConfig
from holdfast.core.model import NewJob, Template
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.port import JournalConfig
from holdfast.ledger.recovery import Progress, RecoveredLedger, ignore_progress, recover
from holdfast.ledger.snapshots import take_snapshot
from holdfast_lab.simulation.disk import SimDisk

CONFIG = JournalConfig(segment_bytes=2_000, extent_bytes=1_024, digest_version=DIGEST_VERSION)


class EndedError(Exception):
    """The recovery was aborted."""


class Told(list[tuple[str, int, int]]):
    """Records the progress; aborts the recovery after `end_after` calls."""

    end_after = 1 << 30

    def __call__(self, stage: str, done: int, total: int) -> None:
        if len(self) == self.end_after:
            raise EndedError
        self.append((stage, done, total))


def opened(disk: SimDisk, told: Progress = ignore_progress) -> RecoveredLedger:
    return recover(disk, CONFIG, LedgerConfig(), now_ms=1_000, new_cluster_id=bytes(16), progress=told)


def filled_disk() -> SimDisk:
    """Returns a disk with a journal of several segments, a snapshot and frames after it."""
    disk = SimDisk(random.Random(0))
    for life in range(2):
        recovered = opened(disk)
        for number in range(30):
            at_ms = 1_000 * (life + 1) + number
            event = events.Created(at_ms, [Template("x")], [NewJob(f"{life}-{number}", 0, b"p" * 100)])
            recovered.ledger.apply(event)
            recovered.journal.write(events.join([events.encode_one(event)]), 1, recovered.ledger.digest, at_ms)
        recovered.journal.close()
        if not life:
            opened(disk).journal.close()
            assert take_snapshot(DirectoryArchive(disk), LedgerConfig())
    return disk


def test_progress_goes_through_the_snapshot_and_then_the_journal() -> None:
    """The progress counts each stage up to its total, the snapshot in bytes and the journal in positions."""
    told = Told()
    recovered = opened(filled_disk(), told)
    stages = [stage for stage, _, _ in told]
    assert stages == sorted(stages, key=["snapshot", "journal"].index)
    assert {"snapshot", "journal"} == set(stages)
    assert all(0 <= done <= total for _, done, total in told)
    replayed = [done for stage, done, _ in told if stage == "journal"]
    assert replayed == sorted(set(replayed))
    assert len(recovered.ledger.state.jobs) == 60


@pytest.mark.parametrize("end_after", [0, 1, 2, 5])
def test_recovery_can_be_ended_at_every_word(end_after: int) -> None:
    """An error of the progress callback ends the recovery, frees the directory and loses no job."""
    disk, told = filled_disk(), Told()
    told.end_after = end_after
    with pytest.raises(EndedError):
        opened(disk, told)
    assert len(opened(disk).ledger.state.jobs) == 60
