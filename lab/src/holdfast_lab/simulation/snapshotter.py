"""Readers of the journal beside the coordinator: the snapshot process, and a reader of history."""

import errno
import random
from collections.abc import Callable
from typing import Protocol

from holdfast.core.ledger import LedgerConfig
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.errors import JournalError, PositionRemovedError
from holdfast.journal.pins import pin
from holdfast.journal.replay import read_sealed
from holdfast.ledger.snapshot_keeper import Builder
from holdfast.ledger.snapshots import take_snapshot
from holdfast_lab.simulation.disk import SimDisk, SimulatedCrash
from holdfast_lab.simulation.process import SimulatedProcess
from holdfast_lab.simulation.process_disk import Killed, ProcessDisk
from holdfast_lab.simulation.scheduler import SimulatedScheduler
from holdfast_lab.simulation.server import DirectoryServer
from holdfast_lab.simulation.side_programs import Program, SideProgram
from holdfast_lab.simulation.swarm import SwarmSettings
from holdfast_lab.simulation.violation import Violation, require
from holdfast_lab.simulation.witness import LogWitness

_START_US = (500, 40_000)
_OPERATIONS_MAX = 60
#: Memory limits of a snapshot process: with the smallest, every frame is a separate step.
_PART_BYTES = (1, 4_096, 1 << 20)
#: The pid in the name of a pin; a real one would differ from run to run.
_PID = 1


class Reporter(Protocol):
    """Counts events, and knows the faults of the disk."""

    disk: SimDisk

    def fired(self, what: str) -> None:
        """Counts an event of this kind."""
        ...

    def is_explained(self) -> bool:
        """Whether a fault of the disk has struck since the last call."""
        ...


class Snapshotter:
    """Starts snapshot processes and readers, and kills the next snapshot process on request."""

    def __init__(self, clock: SimulatedScheduler, settings: SwarmSettings, reporter: Reporter, log: LogWitness) -> None:
        self._clock = clock
        self._reporter = reporter
        self._log = log
        self._rng = random.Random(f"snapshots/{settings.seed}")
        self._sizes = random.Random(f"snapshot sizes/{settings.seed}")
        self._read_us = settings.snapshot_ms * 1_000
        self._running: list[SideProgram] = []
        self.is_next_killed = False

    def begin(self, process: SimulatedProcess, config: LedgerConfig) -> Builder:
        """Returns the port `Builder` for one process of the coordinator."""
        return _SnapshotBuilder(self, process, config)

    def close(self) -> None:
        """Ends all programs that still run."""
        for side_program in self._running:
            side_program.kill()

    def _start(self, program: Program, killed_at: int | None = None) -> SideProgram:
        side_program = SideProgram(self._reporter.disk, program, self._rng, killed_at)
        self._running = [other for other in self._running if not other.is_over] + [side_program]
        return side_program

    # -- snapshots

    def make(self, process: SimulatedProcess, config: LedgerConfig, done: Callable[[str], None]) -> None:
        """Starts a snapshot process beside the coordinator; it dies with it."""
        killed_at = self._rng.randint(1, _OPERATIONS_MAX) if self.is_next_killed else None
        self.is_next_killed = False
        part_bytes = self._sizes.choice(_PART_BYTES)
        side_program = self._start(lambda disk: take_snapshot(DirectoryArchive(disk), config, part_bytes), killed_at)

        def made(_: SideProgram) -> None:
            process.guard(lambda: self._made(side_program, process, done))

        delay_us = self._rng.randint(*_START_US)
        self._clock.after(delay_us, "snapshot", lambda: side_program.run(self._clock, process, "snapshot", made))

    def _made(self, side_program: SideProgram, process: SimulatedProcess, done: Callable[[str], None]) -> None:
        problem = self._judge(side_program)
        process.enter(self._rng.randint(*_START_US), "snapshot made", lambda: done(problem))

    def _judge(self, side_program: SideProgram) -> str:
        error = side_program.error
        if error is None:
            self._reporter.fired("snapshot" if side_program.result else "snapshot of nothing")
            return "" if side_program.result else "there was nothing to snapshot"
        if isinstance(error, Killed):
            self._reporter.fired("snapshot-killed")
        elif isinstance(error, OSError):
            # ENOSPC needs no further check: the disk may have space again by now, and it must not use up a fault that
            # may have struck the journal meanwhile.
            is_explained = error.errno == errno.ENOSPC or self._reporter.is_explained()
            require(is_explained, f"a snapshot could not be written, and no fault explains it: {error}")
            self._reporter.fired("snapshot failed")
        elif isinstance(error, JournalError):
            raise Violation(f"a snapshot could not be made: {error}") from error
        else:
            raise error
        return str(error) or "killed"

    # -- history

    def read_later(self, server: DirectoryServer) -> None:
        """Starts a reader of history now and then, as long as this process lives."""
        delay_us = int(self._rng.expovariate(1) * self._read_us)
        self._clock.after(delay_us, "reader", lambda: self._read(server))

    def _read(self, server: DirectoryServer) -> None:
        if not server.process.is_alive or server.process.is_failing:
            return
        first = server.journal.first_position
        side_program = self._start(lambda disk: self._read_history(disk, first))

        def read(_: SideProgram) -> None:
            server.process.guard(lambda: self._judge_reading(side_program))
            self.read_later(server)

        side_program.run(self._clock, server.process, "reader", read)

    def _read_history(self, disk: ProcessDisk, first: int) -> int:
        frames = 0
        with pin(disk, first, pid=_PID):
            for frame in read_sealed(disk, after=first - 1):
                self._log.check_frame(frame)
                frames += 1
        return frames

    def _judge_reading(self, side_program: SideProgram) -> None:
        error = side_program.error
        if error is None:
            self._reporter.fired("history read" if side_program.result else "history read in vain")
        elif isinstance(error, PositionRemovedError):
            # Removed between the choice of a position and the pin on it, which raises this error.
            self._reporter.fired("history was removed")
        elif isinstance(error, SimulatedCrash | Violation):
            raise error
        elif not isinstance(error, OSError):
            raise Violation(f"pinned history could not be read: {error!r}") from error


class _SnapshotBuilder:
    def __init__(self, snapshotter: Snapshotter, process: SimulatedProcess, config: LedgerConfig) -> None:
        self._snapshotter = snapshotter
        self._process = process
        self._config = config

    def start(self, done: Callable[[str], None]) -> None:
        self._snapshotter.make(self._process, self._config, done)
