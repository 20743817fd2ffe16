"""Power cuts at every file operation of a workload, and of the recovery after it."""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import get_args

import pytest

from holdfast.journal.file import FileJournal
from holdfast.journal.snapshot import SnapshotHeader, list_snapshots, read_snapshot, write_snapshot
from holdfast_lab.simulation.disk import CrashMoment, SimDisk, SimFile, SimulatedCrash
from tests.unit.journal.workload import CONFIG, body_of, check_contiguous, open_journal

MOMENTS: tuple[CrashMoment, ...] = get_args(CrashMoment)


@dataclass(slots=True)
class Promises:
    """The state that the journal has acknowledged to its caller so far."""

    end_position: int = 0
    epoch: int = 0
    removed_up_to: int = 0
    snapshots: list[int] = field(default_factory=list)


def run(disk: SimDisk, promised: Promises) -> None:
    """Open, write over several segments, snapshot, remove, close, reopen, write again, and end without a close."""
    journal = _open(disk, promised)
    _write(journal, promised, 7)
    _snapshot(disk, journal, promised)
    _write(journal, promised, 4)
    _remove(journal, promised)
    journal.close()
    journal = _open(disk, promised)
    _write(journal, promised, 5)
    _snapshot(disk, journal, promised)
    _remove(journal, promised)
    journal.close()
    journal = _open(disk, promised)
    _write(journal, promised, 2)


def _open(disk: SimDisk, promised: Promises) -> FileJournal:
    journal = open_journal(disk, verify_after=promised.removed_up_to)
    assert journal.epoch > promised.epoch, "an epoch was used twice"
    promised.epoch = journal.epoch
    return journal


def _write(journal: FileJournal, promised: Promises, count: int) -> None:
    for _ in range(count):
        first = journal.end_position + 1
        promised.end_position = journal.write(body_of(first), 1 + first % 3, first * 1_000)


def _snapshot(disk: SimDisk, journal: FileJournal, promised: Promises) -> None:
    header = SnapshotHeader(
        digest_version=CONFIG.digest_version,
        cluster_id=journal.cluster_id,
        position=journal.end_position,
        link=journal.end_checksum,
        log_time_ms=5,
        digest=journal.end_position,
    )
    write_snapshot(disk, header, [b"state", bytes(700)])
    promised.snapshots.append(header.position)


def _remove(journal: FileJournal, promised: Promises) -> None:
    limit = promised.snapshots[-1]
    # Recorded before the removal: from here on the caller may need the snapshot.
    promised.removed_up_to = limit
    journal.remove_segments(limit)


def check(disk: SimDisk, promised: Promises) -> None:
    """Reopen the journal and compare it with the acknowledged state."""
    journal = open_journal(disk)
    assert journal.epoch > promised.epoch, "the epoch did not increase"
    assert journal.end_position >= promised.end_position, "an acknowledged frame is missing"
    assert set(promised.snapshots) <= set(list_snapshots(disk)), "a finished snapshot is missing"
    for position in list_snapshots(disk):
        assert b"".join(read_snapshot(disk, position)) == b"state" + bytes(700)
    after = journal.first_position - 1
    assert after <= promised.removed_up_to, "a segment is missing that was not removed"
    frames = list(journal.replay(after))
    check_contiguous(frames, after=after)
    assert (frames[-1].last_position if frames else after) == journal.end_position
    # Recovered frames must be durable, even if the process that wrote them never synced them.
    again = open_journal(disk.crash())
    assert list(again.replay(again.first_position - 1)) == frames, "a recovered frame is missing"


def crash_everywhere(make_disk: Callable[[int], SimDisk], seeds: range) -> int:
    """Run the workload once per operation, moment and seed, with a power cut there; return the number of runs."""
    whole = make_disk(0)
    run(whole, Promises())
    for seed in seeds:
        for operation in range(1, whole.operations + 1):
            for moment in MOMENTS:
                disk = make_disk(seed * 100_000 + operation)
                disk.faults.crash_at_operation, disk.faults.crash_moment = operation, moment
                promised = Promises()
                with pytest.raises(SimulatedCrash):
                    run(disk, promised)
                check(disk.crash(), promised)
    return whole.operations * len(MOMENTS) * len(seeds)


def sound_disk(seed: int) -> SimDisk:
    return SimDisk(random.Random(seed))


def test_power_cut_at_any_operation_keeps_every_promise() -> None:
    """After a power cut the journal opens in a new epoch with a contiguous prefix that has all acknowledged frames."""
    assert crash_everywhere(sound_disk, range(6)) > 2_000


def test_power_cut_with_short_writes_keeps_every_promise() -> None:
    """The promises also hold if the disk splits most writes, so that a power cut falls between the parts."""

    def stingy_disk(seed: int) -> SimDisk:
        disk = SimDisk(random.Random(seed))
        disk.faults.short_write_percent = 70
        return disk

    # The number of operations depends on the seed: some runs end before the power cut.
    for seed in range(150):
        disk = stingy_disk(seed)
        disk.faults.crash_at_operation = seed + 20
        disk.faults.crash_moment = MOMENTS[seed % 3]
        promised = Promises()
        with pytest.raises(SimulatedCrash):
            run(disk, promised)
        disk.faults.short_write_percent = 0
        check(disk.crash(), promised)


def _torn_writes(seed: int) -> list[int]:
    """Return the operations of this seed at which a power cut leaves a torn tail."""
    found = []
    for operation in range(40, 120):
        disk = sound_disk(seed)
        disk.faults.crash_at_operation, disk.faults.crash_moment = operation, "middle"
        with pytest.raises(SimulatedCrash):
            run(disk, Promises())
        disk.crash()
        open_journal(disk)
        if any(name.endswith(".bak") for name in disk.files()):
            found.append(operation)
    assert found, "expected a write of several sectors among the operations"
    return found


def test_power_cut_during_recovery_is_harmless() -> None:
    """After power cuts at any operation of two recoveries in a row, the next recovery succeeds."""
    torn = 0
    for seed in range(12):
        writes = _torn_writes(seed)
        for operation in range(1, 60):
            disk = sound_disk(seed)
            disk.faults.crash_at_operation, disk.faults.crash_moment = writes[operation % len(writes)], "middle"
            promised = Promises()
            with pytest.raises(SimulatedCrash):
                run(disk, promised)
            disk.crash()
            for again in (operation, operation // 2 + 1):
                disk.faults.crash_at_operation = disk.operations + again
                disk.faults.crash_moment = MOMENTS[operation % 3]
                with suppress(SimulatedCrash):
                    promised.epoch = open_journal(disk).epoch
                disk.crash()
            check(disk, promised)
            torn += any(name.endswith(".bak") for name in disk.files())
    assert torn > 50, "expected more than 50 runs with a torn tail"


def test_process_that_dies_loses_nothing_at_all() -> None:
    """If only the process ends, all frames it wrote are recovered, synced or not."""
    whole = sound_disk(0)
    run(whole, Promises())
    for operation in range(1, whole.operations + 1):
        for moment in MOMENTS:
            disk = sound_disk(operation)
            disk.faults.crash_at_operation, disk.faults.crash_moment = operation, moment
            promised = Promises()
            with pytest.raises(SimulatedCrash):
                run(disk, promised)
            check(disk.kill(), promised)


class _SyncsNothing(SimDisk):
    """A broken disk that never syncs files."""

    def open(self, name: str) -> SimFile:
        return _Unsynced(self, self._find(name))

    def create(self, name: str) -> SimFile:
        super().create(name)
        return _Unsynced(self, self._find(name))


class _Unsynced(SimFile):
    __slots__ = ()

    def sync(self) -> None:
        self._disk.begin(self._life)
        self._disk.end()


class _SyncsNoNames(SimDisk):
    """A broken disk that never syncs the directory."""

    def sync_dir(self) -> None:
        self.begin(self.life)
        self.end()


@pytest.mark.parametrize("variant", [_SyncsNothing, _SyncsNoNames])
def test_missing_syncs_are_caught(variant: type[SimDisk]) -> None:
    """The crash tests fail if files or names are not synced."""
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - any promise may break first
        crash_everywhere(lambda seed: variant(random.Random(seed)), range(1))
    assert not isinstance(caught.value, SimulatedCrash)
