"""A ledger that serves in this process: journal, coordinator, and the ports over them, without a listener.

`open` may take long, changes no job and may run on any thread; `start` and `close` must run on the event loop.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast import limits
from holdfast.clock import system_clock
from holdfast.core.condition import Condition
from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.events import AnyEvent
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.owner import Ownership
from holdfast.errors import FailedPreconditionError
from holdfast.journal.descriptors import DescriptorReserve
from holdfast.journal.disk import Disk
from holdfast.journal.file import FileJournal
from holdfast.journal.memory import MemoryJournal
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.port import JournalConfig
from holdfast.ledger.admin_api import LedgerAdmin
from holdfast.ledger.asyncio_shell import AsyncioScheduler, SyncingThread
from holdfast.ledger.clock_log import log_doubts
from holdfast.ledger.coordinator import Coordinator, CoordinatorPorts, LoopConfig
from holdfast.ledger.directives import LeaseTerms
from holdfast.ledger.event_window import JournalHistory
from holdfast.ledger.feed_api import LedgerFeed
from holdfast.ledger.job_api import LedgerJobs
from holdfast.ledger.job_index import IndexKeeper, JobIndex
from holdfast.ledger.log_clock import leave_marks, read_mark
from holdfast.ledger.node_identity import claim
from holdfast.ledger.owned_jobs import OwnedJobs
from holdfast.ledger.ports import Clock, Storage
from holdfast.ledger.recovery import Progress, recover, tell_nobody
from holdfast.ledger.schedule_api import LedgerSchedules
from holdfast.ledger.sessions import SessionConfig
from holdfast.ledger.snapshot_keeper import KeeperConfig, SnapshotHealth, SnapshotKeeper
from holdfast.ledger.snapshot_process import index_command, maker_command
from holdfast.ledger.tick_timer import TickTimer
from holdfast.ledger.work_api import LedgerWork
from holdfast.observe.logs import get_logger
from holdfast.process import process_identity
from holdfast.process.helper_process import HelperProcess
from holdfast.process.memory import ResidentSize, memory_for_jobs
from holdfast.process.private_paths import prepare_directory
from holdfast.settings import Settings

Fatal = Callable[[BaseException], None]
OpenDisk = Callable[[Path], Disk]


class LedgerCore:
    """Everything between a directory and the ports. It cannot be started again."""

    def __init__(
        self,
        settings: Settings,
        fatal: Fatal,
        clock: Clock | None = None,
        ownership: Ownership | None = None,
        open_disk: OpenDisk = OsDisk,
        is_alone: Callable[[], bool] = lambda: False,
    ) -> None:
        """`fatal` is called when the journal has failed; no reply may follow. `ownership` is None without nodes."""
        self.settings = settings
        self._ownership = ownership
        self._memory_bytes = memory_for_jobs(settings)
        self._log = get_logger()
        self._fatal = fatal
        self._clock = clock or system_clock()
        self._open_disk = open_disk
        self._is_alone = is_alone
        self._disk: Disk | None = None
        #: Opened with the journal, because a server without a free descriptor still has to know its size.
        self._resident: ResidentSize | None = None
        self._maker: HelperProcess | None = None
        self._indexer: HelperProcess | None = None
        #: Counts of made and failed snapshots.
        self.snapshots = SnapshotHealth()
        #: The thread of the journal, and the one that deletes files.
        self._threads: list[SyncingThread] = []
        self._is_started = False
        self.journal: FileJournal | MemoryJournal
        self.ledger: Ledger
        self.coordinator: Coordinator
        self.jobs: LedgerJobs
        self.feed: LedgerFeed
        self.schedules: LedgerSchedules
        self.admin: LedgerAdmin
        self.work: LedgerWork

    def open(self, progress: Progress = tell_nobody) -> None:
        """Recovers the ledger from its directory; on failure, raises an error that says what to do. Changes no job."""
        settings = self.settings
        if settings.is_in_memory:
            keys_max = settings.dedup_keys_max or limits.DEDUP_KEYS_DEFAULT
            self.ledger = Ledger(LedgerConfig(settings.aging_ms, keys_max, self._memory_bytes))
            self.journal = MemoryJournal(cluster_id=secrets.token_bytes(16), keeps_frames=False)
            return
        try:
            self._recover(progress)
        except OSError as error:
            raise FailedPreconditionError(
                f"{settings.data!r} cannot be the data directory: {error.strerror or error};"
                " choose another, or make it a directory that this user may write",
                reason="DATA_UNUSABLE",
            ) from error

    def _recover(self, progress: Progress) -> None:
        settings = self.settings
        claim(Path(settings.data), self._ownership)
        prepare_directory(Path(settings.data))
        self._disk = self._open_disk(Path(settings.data))
        recovered = recover(
            self._disk,
            _journal_config(settings.segment_bytes),
            LedgerConfig(settings.aging_ms, settings.dedup_keys_max, self._memory_bytes),
            now_ms=self._clock.wall_ms(),
            new_cluster_id=secrets.token_bytes(16),
            progress=progress,
        )
        self.journal, self.ledger = recovered.journal, recovered.ledger
        for warning in recovered.warnings:
            self._log.warning("recovery", message=warning)
        try:
            claim(Path(settings.data), self._ownership)  # again, now that no other process can interfere
        except BaseException:
            self.journal.close()
            raise

    def prepare(self, storage: Storage | None = None) -> Coordinator:
        """Creates the coordinator over `storage` (by default the journal), and its ports; it decides nothing yet."""
        loop = asyncio.get_running_loop()
        sync = SyncingThread(loop, is_blocking=not self.settings.is_in_memory, is_alone=self._is_alone)
        self._threads.append(sync)
        previous = read_mark(self._disk) if self._disk is not None else None
        self._resident = ResidentSize()
        ports = CoordinatorPorts(self._clock, AsyncioScheduler(loop), sync, self._fatal, previous, self._resident.read)
        settings = self.settings
        config = LoopConfig(
            retain_ms=settings.retain_ms,
            retain_jobs=settings.retain_jobs,
            # Results are evicted in favour of waiting jobs: they use at most half of the memory.
            retain_bytes=min(settings.retain_bytes, self._memory_bytes // 2),
            retain_failed_ms=settings.failed_retention_ms,
        )
        self.coordinator = Coordinator(self.ledger, storage or self.journal, ports, config)
        self.coordinator.observers.append(BugLog())
        log_doubts(self.coordinator.time.log)
        if self._disk is not None:
            leave_marks(self._disk, self.coordinator.time.log)
        self._keep_snapshots()
        times = SessionConfig(settings.lease_ms, settings.worker_timeout_ms, settings.reconnect_grace_ms)
        self.work = LedgerWork(self.coordinator, times)
        dispatcher = self.work.dispatcher
        workers, progress = dispatcher.registry.all, dispatcher.progress
        self.jobs = (
            LedgerJobs(self.coordinator, workers, progress=progress)
            if self._ownership is None
            else OwnedJobs(self.coordinator, workers, self._ownership, progress=progress)
        )
        TickTimer(self.coordinator, self.jobs.fresh_id)
        self.schedules = LedgerSchedules(self.coordinator, self.jobs.fresh_id)
        self.feed = LedgerFeed.over(self.coordinator, self._past())
        self.admin = LedgerAdmin(
            self.coordinator,
            dispatcher,
            epoch=self.journal.epoch,
            cluster_id=self.journal.cluster_id.hex(),
            conditions=self.conditions,
        )
        self.admin.ownership = self._ownership
        return self.coordinator

    def start(self) -> None:
        """Starts the coordinator: it accepts commands from now on."""
        self._is_started = True
        self.coordinator.start(process_identity.own(), process_identity.is_gone)

    def dismiss(self) -> None:
        """Notifies clients that wait for a job or read the feed that this ledger stops."""
        self.jobs.close()
        self.feed.close()

    async def close(self) -> None:
        """Sends the replies of decided commands, then closes the journal. Workers keep their leases."""
        if self._is_started:
            stopped = asyncio.Event()
            self.coordinator.stop(stopped.set)
            await stopped.wait()
        await self.abandon()

    async def abandon(self) -> None:
        """Ends threads and helper processes and closes the journal, without deciding anything more."""
        beside = [process for process in (self._maker, self._indexer) if process is not None]
        for process in beside:
            process.stop()
        for thread in self._threads:
            thread.close()
        self.journal.close()
        if self._resident is not None:
            self._resident.close()
        for process in beside:
            await process.ended()

    def disown(self) -> None:
        """Releases a forked child's copy of the directory lock, so that the lock ends with the parent."""
        if self._disk is not None:
            self._disk.unlock()

    def _past(self) -> JournalHistory | None:
        """Returns the past events of the journal; None for a ledger in memory."""
        if isinstance(self.journal, FileJournal) and self._disk is not None:
            index = JobIndex(self.journal, self._disk)
            directory = self.settings.data
            self._indexer = HelperProcess(
                asyncio.get_running_loop(),
                lambda: index_command(directory),
                self._descriptors(),
                failed="index_failed",
            )
            IndexKeeper(self.coordinator, self.journal, self._disk, index, self._indexer)
            return JournalHistory(self.journal, self._disk, index)
        return None

    def terms(self) -> LeaseTerms:
        """Returns the terms that every worker receives first."""
        settings, journal = self.settings, self.journal
        return LeaseTerms(settings.lease_ms, settings.heartbeat_ms, journal.epoch, journal.cluster_id.hex())

    def _keep_snapshots(self) -> None:
        if isinstance(self.journal, FileJournal):
            assert self._disk is not None
            settings = self.settings
            state, loop = self.ledger.state, asyncio.get_running_loop()
            self._maker = HelperProcess(
                loop,
                lambda: maker_command(settings.data, state.bytes_held),
                self._descriptors(),
            )
            config = KeeperConfig(
                snapshot_bytes=settings.snapshot_bytes,
                history_ms=settings.history_ms,
                history_bytes=settings.history_bytes,
            )
            aside = SyncingThread(loop, name="holdfast-tidy")
            self._threads.append(aside)
            keeper = SnapshotKeeper(self.coordinator.commit, self.journal, self._disk, self._maker, aside, config)
            self.snapshots = keeper.health

    def _descriptors(self) -> DescriptorReserve:
        """Returns the journal's descriptor reserve, which it lends to its helper processes."""
        return self._disk.descriptors if isinstance(self._disk, OsDisk) else DescriptorReserve()

    def conditions(self) -> Sequence[Condition]:
        """Returns the conditions that an operator should check, although the ledger serves."""
        return [*self.coordinator.memory.conditions(), *self.snapshots.conditions()]


def _journal_config(segment_bytes: int) -> JournalConfig:
    """Returns the configuration; reserves at most the size of one segment in advance."""
    config = JournalConfig(segment_bytes=segment_bytes, digest_version=DIGEST_VERSION)
    return replace(config, extent_bytes=min(config.extent_bytes, segment_bytes))


class BugLog:
    """An observer of a coordinator that logs only bugs."""

    def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
        """Does nothing."""

    def durable(self, position: int) -> None:
        """Does nothing."""

    def bug(self, command: object, error: Exception) -> None:
        """Logs the traceback; the client only got INTERNAL."""
        get_logger().error("bug", message=f"the command {type(command).__name__} failed", exc_info=error)
