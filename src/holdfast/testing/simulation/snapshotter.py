"""The maker of snapshots: a process beside the coordinator, which can be killed at any I/O."""

import random
from collections.abc import Callable
from typing import Protocol

from holdfast.coordinator.snapshots import Maker, take_snapshot
from holdfast.core.ledger import LedgerConfig
from holdfast.journal.disk import Disk, File, Hold
from holdfast.journal.errors import JournalError
from holdfast.testing.disk import SimDisk
from holdfast.testing.simulation.clockwork import Clockwork
from holdfast.testing.simulation.process import Process
from holdfast.testing.simulation.swarm import Settings
from holdfast.testing.simulation.violation import Violation, require

_START_US = (500, 40_000)
_OPERATIONS_MAX = 60


class Killed(BaseException):
    """The maker's process was killed; no handler of it runs."""


class ProcessDisk:
    """The disk as one process sees it: it counts calls, and after the fatal one every call fails."""

    def __init__(self, disk: SimDisk, killed_at: int | None) -> None:
        self._disk = disk
        self._killed_at = killed_at
        self._calls = 0
        self.held: list[str] = []

    def tick(self) -> None:
        """One more call."""
        self._calls += 1
        if self._killed_at is not None and self._calls >= self._killed_at:
            raise Killed

    def create(self, name: str) -> File:
        self.tick()
        return _ProcessFile(self, self._disk.create(name))

    def open(self, name: str) -> File:
        self.tick()
        return _ProcessFile(self, self._disk.open(name))

    def names(self) -> list[str]:
        self.tick()
        return self._disk.names()

    def rename(self, old: str, new: str) -> None:
        self.tick()
        self._disk.rename(old, new)

    def remove(self, name: str) -> None:
        self.tick()
        self._disk.remove(name)

    def sync_dir(self) -> None:
        self.tick()
        self._disk.sync_dir()

    def lock(self) -> None:
        raise Violation("the maker of snapshots claimed the directory")

    def unlock(self) -> None:
        raise Violation("the maker of snapshots gave the directory up")

    def hold(self, name: str) -> Hold:
        self.tick()
        self.held.append(name)
        return _ProcessHold(self, self._disk.hold(name))

    def reap(self, name: str) -> bool:
        self.tick()
        return self._disk.reap(name)


class _ProcessFile:
    __slots__ = ("_file", "_process")

    def __init__(self, process: ProcessDisk, file: File) -> None:
        self._process = process
        self._file = file

    def write_at(self, offset: int, data: bytes) -> int:
        self._process.tick()
        return self._file.write_at(offset, data)

    def read_at(self, offset: int, size: int) -> bytes:
        self._process.tick()
        return self._file.read_at(offset, size)

    def sync(self) -> None:
        self._process.tick()
        self._file.sync()

    def reserve(self, size: int) -> None:
        self._process.tick()
        self._file.reserve(size)

    def truncate(self, size: int) -> None:
        self._process.tick()
        self._file.truncate(size)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class _ProcessHold:
    __slots__ = ("_hold", "_process")

    def __init__(self, process: ProcessDisk, hold: Hold) -> None:
        self._process = process
        self._hold = hold

    def release(self) -> None:
        self._process.tick()
        self._hold.release()


class Reporter(Protocol):
    """Whoever keeps count of what happened, and why."""

    def fired(self, what: str) -> None:
        """One more of this kind happened."""
        ...

    def is_explained(self) -> bool:
        """Whether a fault of the disk has struck since this was last asked."""
        ...


class Snapshotter:
    """Starts makers, and kills the next one when told to."""

    def __init__(self, clock: Clockwork, disk: SimDisk, settings: Settings, reporter: Reporter) -> None:
        self._clock = clock
        self._disk = disk
        self._reporter = reporter
        self._fired = reporter.fired
        self._rng = random.Random(f"snapshots/{settings.seed}")
        self.is_next_killed = False

    def begin(self, process: Process, config: LedgerConfig) -> Maker:
        """The maker's port for one life of the coordinator."""
        return _Maker(self, process, config)

    def later(self, process: Process, config: LedgerConfig, done: Callable[[bool], None]) -> None:
        """A maker starts beside the coordinator, and dies with it."""
        delay_us = self._rng.randint(*_START_US)
        self._clock.after(delay_us, "snapshot", lambda: self._run(process, config, done))

    def _run(self, process: Process, config: LedgerConfig, done: Callable[[bool], None]) -> None:
        if not process.is_alive:
            return
        is_made = False

        def make() -> None:
            nonlocal is_made
            is_made = self._make(config)

        process.guard(make)
        if process.is_alive:
            process.enter(self._rng.randint(*_START_US), "snapshot made", lambda: done(is_made))

    def _make(self, config: LedgerConfig) -> bool:
        killed_at = self._rng.randint(1, _OPERATIONS_MAX) if self.is_next_killed else None
        self.is_next_killed = False
        disk: Disk = ProcessDisk(self._disk, killed_at)
        try:
            position = take_snapshot(disk, config)
        except Killed:
            self._fired("snapshot-killed")
            self._let_go(disk)
            return False
        except OSError:
            is_explained = self._reporter.is_explained() or self._disk.faults.free_bytes is not None
            require(is_explained, "a snapshot could not be written, and no fault explains it")
            self._fired("snapshot failed")
            return False
        except JournalError as error:
            raise Violation(f"a snapshot could not be made: {error}") from error
        self._fired("snapshot" if position else "snapshot of nothing")
        return bool(position)

    def _let_go(self, disk: Disk) -> None:
        """The kernel ends a dead process's claims and leaves its files."""
        assert isinstance(disk, ProcessDisk)
        for name in disk.held:
            self._disk._held.discard(name)  # noqa: SLF001 - what only a kernel does


class _Maker:
    def __init__(self, snapshotter: Snapshotter, process: Process, config: LedgerConfig) -> None:
        self._snapshotter = snapshotter
        self._process = process
        self._config = config

    def start(self, done: Callable[[bool], None]) -> None:
        self._snapshotter.later(self._process, self._config, done)
