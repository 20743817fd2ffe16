"""The machine of the coordinator: it boots, ends in every possible way, and boots again."""

import random
from collections.abc import Callable, Collection

from holdfast.core.ledger import LedgerConfig
from holdfast.errors import HoldfastError
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.errors import JournalFailedError, JournalFullError
from holdfast.journal.port import JournalConfig
from holdfast.ledger import recovery
from holdfast.ledger.log_clock import leave_marks, read_mark
from holdfast.ledger.snapshot_keeper import SnapshotKeeper
from holdfast.ledger.snapshot_policy import KeeperConfig
from holdfast_lab.simulation.clock_watch import ClockRecord, ClockWatch
from holdfast_lab.simulation.disk import SimDisk, SimulatedCrash, _Inode
from holdfast_lab.simulation.lease_watch import LeaseWatch
from holdfast_lab.simulation.process import DeletionThread, SimulatedProcess
from holdfast_lab.simulation.response_checks import ResponseChecks
from holdfast_lab.simulation.scheduler import Call, SimulatedScheduler
from holdfast_lab.simulation.server import DirectoryServer, SimulatedServer
from holdfast_lab.simulation.snapshotter import Snapshotter
from holdfast_lab.simulation.swarm import SwarmSettings
from holdfast_lab.simulation.tick_watch import TickWatch
from holdfast_lab.simulation.violation import Violation, require
from holdfast_lab.simulation.witness import LogWitness

_BOOT_US = (1_000, 400_000)
_RETRY_US = 500_000
_HEALING_US = 2_000_000
_HISTORY_SEGMENTS = 8


class CountingDisk(SimDisk):
    """A disk that counts short writes."""

    def __init__(self, rng: random.Random, fired: Callable[[str], None]) -> None:
        super().__init__(rng)
        self._fired = fired

    def writable(self, inode: _Inode, offset: int, size: int) -> int:
        """Same as the base class, and counts."""
        written = super().writable(inode, offset, size)
        if written < size and self.faults.short_write_percent:
            self._fired("short-write")
        return written


class Host:
    """At most one running process of the coordinator at a time."""

    def __init__(
        self, clock: SimulatedScheduler, settings: SwarmSettings, log: LogWitness, response_checks: ResponseChecks
    ) -> None:
        self.clock = clock
        self._settings = settings
        self._log = log
        self._response_checks = response_checks
        self._rng = random.Random(f"host/{settings.seed}")
        self.disk: SimDisk = CountingDisk(random.Random(f"disk/{settings.seed}"), self.fired)
        self.server: DirectoryServer | None = None
        self._process: SimulatedProcess | None = None
        self._booting = False
        self.counts: dict[str, int] = {}
        self.on_down: list[Call] = []
        #: Faults of the disk that have not struck yet.
        self.armed: set[str] = set()
        self.healed_us = 0
        self._minted = 0
        self._clocks = ClockRecord()
        self.snapshotter = Snapshotter(clock, settings, self, log)

    def fired(self, what: str) -> None:
        """Counts an event of this kind."""
        self.counts[what] = self.counts.get(what, 0) + 1

    @property
    def had_room(self) -> bool:
        """Whether there was disk space for events recently; without it, expired leases stay for a while."""
        is_healed = self.clock.now_us - self.healed_us > _HEALING_US or not self.healed_us
        return is_healed and self.disk.faults.free_bytes is None

    def current_leases(self) -> Collection[int]:
        """Returns the leases of the coordinator, durable or not; none while expired ones wait for their revocation."""
        if self.server is None or self.server.coordinator.ledger.leases.is_behind:
            return ()
        return self.server.coordinator.ledger.state.leases

    def is_explained(self) -> bool:
        """Whether a fault of the disk has struck since the last call."""
        faults = self.disk.faults
        struck = sorted(name for name in self.armed if not getattr(faults, name))
        self.armed.difference_update(struck[:1])
        return bool(struck)

    # -- starts

    def boot(self) -> None:
        """Recovers from the disk, checks the state against the log, and serves."""
        self._booting = False
        if self.server is not None:
            return
        faults = self.disk.faults
        self.armed = {name for name in self.armed if getattr(faults, name)}
        process = SimulatedProcess(self.clock, self._rng, self.cut_power, self._on_fatal)
        self._process = process
        try:
            self._boot(process)
        except SimulatedCrash:
            self.fired("crash in recovery")
            self.cut_power()
        except JournalFullError:
            require(self.disk.faults.free_bytes is not None, "the journal found no space on a disk that is not full")
            self._give_up("no room to start")
        except JournalFailedError:
            require(self.is_explained(), "the journal could not be opened, and no fault explains it")
            self._give_up("fault in recovery")
        except HoldfastError as error:
            raise Violation(f"the coordinator refused to start: {error}") from error

    def _boot(self, process: SimulatedProcess) -> None:
        settings, wall_ms = self._settings, self.clock.wall_ms()
        config = JournalConfig(segment_bytes=settings.segment_bytes, extent_bytes=settings.extent_bytes)
        ledger_config = LedgerConfig(aging_ms=settings.aging_ms, memory_bytes=settings.memory_bytes)
        recovered = recovery.recover(
            self.disk, config, ledger_config, now_ms=wall_ms, new_cluster_id=b"simulated-queue!"
        )
        require(not recovered.warnings, f"recovery passed over a snapshot: {recovered.warnings}")
        self._log.recovered(recovered.journal, recovered.ledger)
        self._response_checks.check_kept()
        server = DirectoryServer(process, self.clock, recovered, self._log, settings, self._mint, read_mark(self.disk))
        leave_marks(self.disk, server.coordinator.time.log)
        ClockWatch(server.coordinator, self.clock, self._clocks, settings.doubt_ms)
        keeper_config = KeeperConfig(
            snapshot_bytes=2 * settings.segment_bytes,
            history_ms=settings.snapshot_ms,
            history_bytes=_HISTORY_SEGMENTS * settings.segment_bytes,
            look_ms=settings.snapshot_ms // 4,
        )
        maker = self.snapshotter.begin(process, ledger_config)
        archive = DirectoryArchive(self.disk)
        SnapshotKeeper(server.coordinator.commit, recovered.journal, archive, maker, DeletionThread(), keeper_config)
        watch = LeaseWatch(server.coordinator, process, self.clock, self.disk, settings.outcome_bytes)
        TickWatch(server.coordinator, self.disk)
        self.server = server
        self.fired("boot")
        if recovered.journal.first_position > 1:
            self.fired("boot on a snapshot")
        self.snapshotter.read_later(server)
        watch.resumed(server.coordinator.time.now().log_ms, self._log.model.leases.values())
        process.guard(lambda: server.coordinator.start(f"life-{recovered.journal.epoch}"))
        self._check_orphans(server)

    def _check_orphans(self, server: DirectoryServer) -> None:
        """Checks that workers that died with an earlier process hold no lease, if there was space to record it."""
        if self.server is server and self.disk.faults.free_bytes is None:
            orphans = [lease.token for lease in server.coordinator.ledger.state.leases.values() if lease.host]
            require(not orphans, f"the leases {orphans} of workers that died with the coordinator were kept")

    def _mint(self) -> str:
        """Returns a unique id; in production ids are random."""
        self._minted += 1
        return f"made-{self._minted}"

    def _end(self) -> None:
        server = self.server
        if self._process is not None:
            self._process.is_alive = False
        self._process = self.server = None
        for call in self.on_down:
            call()
        if server is not None:
            server.loop.end()

    def _boot_later(self, after_us: int) -> None:
        if not self._booting:
            self._booting = True
            self.clock.after(after_us, "boot", self.boot)

    def _boot_us(self) -> int:
        low, high = _BOOT_US
        return int(low * (high / low) ** self._rng.random())

    def _give_up(self, why: str) -> None:
        self.fired(why)
        self.disk.kill()
        self._end()
        self._boot_later(_RETRY_US)

    # -- ends

    def cut_power(self) -> None:
        """Cuts the power: data that was not synced may be lost."""
        self.clock.note("power cut")
        self.clock.boots += 1
        self.disk.crash()
        self._end()
        self._boot_later(self._boot_us())

    def kill(self) -> None:
        """Ends the process (kill -9); written data stays, synced or not."""
        self.clock.note("killed")
        self.disk.kill()
        self._end()
        self._boot_later(self._boot_us())

    def stop(self) -> bool:
        """Stops cleanly, then starts; returns False if no coordinator is serving."""
        server = self.server
        if server is None or not server.coordinator.is_serving:
            return False
        server.process.here("stop", lambda: self._stop(server))
        return True

    def _stop(self, server: DirectoryServer) -> None:
        server.loop.visit(server.sockets.dismiss)
        server.coordinator.stop(lambda: self._stopped(server))

    def _stopped(self, server: DirectoryServer) -> None:
        try:
            server.journal.close()
            self.fired("clean stop")
        except JournalFailedError:
            require(self.is_explained(), "the journal could not be closed, and no fault explains it")
        if self.server is server:
            self.disk.kill()
            self._end()
            self._boot_later(self._boot_us())

    def _on_fatal(self, error: BaseException) -> None:
        if isinstance(error, JournalFailedError) and self.is_explained():
            self.fired("stopped by itself")
            self.kill()
        else:
            raise Violation(f"the coordinator stopped itself without cause: {error!r}") from error

    # -- messages

    def enter(self, kind: str, call: Callable[[SimulatedServer], None]) -> bool:
        """Delivers a call to the current process; returns False if there is none."""
        server = self.server
        if server is None:
            return False
        server.process.here(kind, lambda: call(server))
        return True
