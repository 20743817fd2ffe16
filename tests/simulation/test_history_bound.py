"""The bound of the journal's history, and the order of removal when the disk fills up."""

import random
from collections.abc import Callable

import pytest

from holdfast.core import commands
from holdfast.core.commands import Submitted
from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.ledger import LedgerConfig
from holdfast.core.model import NewJob, Template
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.errors import JournalError
from holdfast.journal.pins import pin
from holdfast.journal.port import JournalConfig
from holdfast.journal.snapshot import list_snapshots
from holdfast.ledger.coordinator import CommandLane, Coordinator, CoordinatorPorts, LoopConfig
from holdfast.ledger.group_commit import NO_SPACE
from holdfast.ledger.recovery import recover
from holdfast.ledger.snapshot_keeper import SnapshotKeeper
from holdfast.ledger.snapshot_policy import SNAPSHOTS_KEPT, KeeperConfig
from holdfast.ledger.snapshots import take_snapshot
from holdfast_lab.faults.full_disk import SimulatedMachine
from holdfast_lab.simulation.disk import SimDisk

SEGMENT_BYTES = 8_192
JOURNAL = JournalConfig(segment_bytes=SEGMENT_BYTES, extent_bytes=2_048, digest_version=DIGEST_VERSION)
PAYLOAD = bytes(range(250)) * 2


class AtOnce:
    """Runs the work synchronously."""

    def run(self, work: Callable[[], int], done: Callable[[int | BaseException], None], *, is_lone: bool) -> None:
        del is_lone
        done(work())


class BusyLedger:
    """A coordinator whose snapshots are made at once, in this process; its jobs are canceled and soon removed."""

    def __init__(self, keeper: KeeperConfig, disk: SimDisk | None = None) -> None:
        self.disk = disk or SimDisk(random.Random(0))
        self.machine = SimulatedMachine()
        recovered = recover(self.disk, JOURNAL, LedgerConfig(), now_ms=0, new_cluster_id=bytes(16))
        self.journal = recovered.journal
        world = CoordinatorPorts(self.machine.clock, self.machine, self.machine, self.machine.fatal)
        config = LoopConfig(spare_bytes=2_048, retain_jobs=4)
        self.coordinator = Coordinator(recovered.ledger, self.journal, world, config)
        self.archive = DirectoryArchive(self.disk)
        self.makes = self.failures = 0
        SnapshotKeeper(self.coordinator.commit, self.journal, self.archive, self, AtOnce(), keeper)
        self.coordinator.start()
        self._jobs = 0

    def start(self, done: Callable[[str], None]) -> None:
        """Makes a snapshot; the keeper calls it."""
        self.makes += 1
        try:
            is_made = take_snapshot(self.archive, LedgerConfig()) > 0
        except (OSError, JournalError):
            self.failures += 1
            is_made = False
        done("" if is_made else "the disk was full")

    def work(self, count: int) -> int:
        """Submits `count` jobs one after the other and cancels each; returns the number of accepted jobs."""
        answers: list[object] = []
        for _ in range(count):
            self._jobs += 1
            job = f"job-{self.journal.epoch}-{self._jobs}"
            submit = commands.Submit([Template("type")], [NewJob(job, 0, PAYLOAD)])
            self.coordinator.call(CommandLane.SUBMIT, submit, answers.append)
            self.coordinator.call(CommandLane.SUBMIT, commands.Cancel(job, ""), lambda _: None)
            self.machine.pass_s(1)
        assert all(answer is NO_SPACE or isinstance(answer, Submitted) for answer in answers)
        return sum(isinstance(answer, Submitted) for answer in answers)

    def sealed_bytes(self) -> int:
        return sum(info.bytes for info in self.journal.segments() if info.is_sealed)


def keeper(**bounds: int) -> KeeperConfig:
    """A configuration with a snapshot after every two segments."""
    return KeeperConfig(snapshot_bytes=2 * SEGMENT_BYTES, look_ms=1_000, **bounds)


def test_history_stays_under_its_bound() -> None:
    """Sealed segments that snapshots cover are removed, oldest first, once all of them exceed `history_bytes`."""
    bound = 8 * SEGMENT_BYTES
    ledger = BusyLedger(keeper(history_bytes=bound))
    largest = 0
    for _ in range(40):
        ledger.work(10)
        largest = max(largest, ledger.sealed_bytes())
    # A segment exceeds its size by at most a frame, and the keeper checks the bound once a second.
    assert bound // 2 < ledger.sealed_bytes() <= largest <= bound + 2 * SEGMENT_BYTES
    assert ledger.journal.first_position > 1


def test_pinned_history_is_kept_beyond_its_bound() -> None:
    """Pinned segments are kept above the bound, and removed after the pin."""
    ledger = BusyLedger(keeper(history_bytes=0))
    with pin(ledger.disk, 1, pid=1):
        ledger.work(200)
        assert ledger.journal.first_position == 1
    ledger.work(10)
    assert ledger.journal.first_position > 1


def test_history_makes_room_before_a_submit_is_refused() -> None:
    """On a full disk, covered segments are removed so that jobs are accepted and snapshots are still made."""
    ledger = BusyLedger(keeper())
    assert ledger.work(200) == 200
    ledger.disk.faults.free_bytes = 0
    before = ledger.makes
    assert ledger.work(400) == 400
    assert ledger.makes > before
    assert ledger.failures == 0
    assert ledger.disk.faults.free_bytes >= 0
    ledger.disk.kill()
    again = BusyLedger(keeper(), ledger.disk)
    assert again.coordinator.ledger.position > 0


def test_submit_that_finds_no_room_is_not_refused_while_history_can_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two checks of the keeper, the loop frees space itself by removing the oldest covered segments."""
    ledger = BusyLedger(keeper())
    assert ledger.work(200) == 200
    monkeypatch.setattr(ledger.coordinator.commit.snapshots, "durable", lambda _: None)
    before = ledger.journal.first_position
    ledger.disk.faults.free_bytes = 0
    assert ledger.work(40) == 40
    assert ledger.journal.first_position > before


def test_disk_that_runs_short_gets_a_snapshot_early() -> None:
    """A snapshot is made while there is still space for it, so that history can be removed and jobs are accepted."""
    ledger = BusyLedger(KeeperConfig(snapshot_bytes=1 << 30, look_ms=1_000))
    ledger.work(200)
    assert list_snapshots(ledger.disk) == []
    ledger.disk.faults.free_bytes = 4 * SEGMENT_BYTES
    assert ledger.work(400) == 400
    assert len(list_snapshots(ledger.disk)) == SNAPSHOTS_KEPT
