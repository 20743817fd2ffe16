"""A ledger that serves in this process: journal, coordinator, and the ports over them, without a listener.

`open` may take long, changes no job and may run on any thread; `start` and `close` must run on the event loop.
"""

import asyncio
from collections.abc import Callable, Sequence

from holdfast.clock import system_clock
from holdfast.core.condition import Condition
from holdfast.core.events import AnyEvent
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.owner import Ownership
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.port import Journal
from holdfast.ledger.admin_api import LedgerAdmin
from holdfast.ledger.asyncio_shell import AsyncioScheduler, SyncingThread
from holdfast.ledger.clock_log import log_doubts
from holdfast.ledger.coordinator import Coordinator, CoordinatorPorts, LoopConfig
from holdfast.ledger.feed_api import LedgerFeed
from holdfast.ledger.job_api import LedgerJobs
from holdfast.ledger.owned_jobs import OwnedJobs
from holdfast.ledger.ports import Clock, Storage
from holdfast.ledger.recovery import Progress, ignore_progress
from holdfast.ledger.schedule_api import LedgerSchedules
from holdfast.ledger.session_messages import LeaseTerms
from holdfast.ledger.sessions import SessionConfig
from holdfast.ledger.snapshot_keeper import SnapshotHealth
from holdfast.ledger.store import DirectoryStore, LedgerStore, MemoryStore, OpenDisk
from holdfast.ledger.tick_timer import TickTimer
from holdfast.ledger.work_api import LedgerWork
from holdfast.observe.logs import get_logger
from holdfast.process import process_identity
from holdfast.process.memory import ResidentSize, memory_for_jobs
from holdfast.settings import Settings

Fatal = Callable[[BaseException], None]


class LedgerCore:
    """Everything between a store and the ports. It cannot be started again."""

    def __init__(
        self,
        settings: Settings,
        fatal: Fatal,
        clock: Clock | None = None,
        ownership: Ownership | None = None,
        open_disk: OpenDisk = OsDisk,
        is_alone: Callable[[], bool] = lambda: False,
        store: LedgerStore | None = None,
    ) -> None:
        """`fatal` is called when the journal has failed; no reply may follow. `ownership` is None without nodes.

        Without a `store`, the settings determine the place of the journal: memory, or a directory.
        """
        self.settings = settings
        self._ownership = ownership
        self._memory_bytes = memory_for_jobs(settings)
        self._fatal = fatal
        self._clock = clock or system_clock()
        self._is_alone = is_alone
        self._store = store or (
            MemoryStore() if settings.is_in_memory else DirectoryStore(settings, ownership, open_disk)
        )
        #: The thread that writes the journal.
        self._sync: SyncingThread | None = None
        #: Opened before it is served, because a server without a free descriptor still has to know its size.
        self._resident: ResidentSize | None = None
        self._is_started = False
        self.ledger: Ledger
        self.coordinator: Coordinator
        self.jobs: LedgerJobs
        self.feed: LedgerFeed
        self.schedules: LedgerSchedules
        self.admin: LedgerAdmin
        self.work: LedgerWork

    @property
    def journal(self) -> Journal:
        """The journal, once it is open."""
        return self._store.journal

    @property
    def snapshots(self) -> SnapshotHealth:
        """Counts of made and failed snapshots."""
        return self._store.snapshots

    def open(self, progress: Progress = ignore_progress) -> None:
        """Recovers the ledger from its store; on failure, raises an error that says what to do. Changes no job."""
        settings = self.settings
        config = LedgerConfig(settings.aging_ms, settings.dedup_keys_max, self._memory_bytes)
        self.ledger = self._store.open(config, self._clock.wall_ms(), progress)

    def prepare(self, storage: Storage | None = None) -> Coordinator:
        """Creates the coordinator over `storage` (by default the journal), and its ports; it decides nothing yet."""
        self.coordinator = self._coordinator(storage or self.journal)
        history = self._store.attach(self.coordinator)
        settings = self.settings
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
        self.feed = LedgerFeed.over(self.coordinator, history)
        self.admin = LedgerAdmin(
            self.coordinator,
            dispatcher,
            epoch=self.journal.epoch,
            cluster_id=self.journal.cluster_id.hex(),
            conditions=self.conditions,
        )
        self.admin.ownership = self._ownership
        return self.coordinator

    def _coordinator(self, storage: Storage) -> Coordinator:
        loop = asyncio.get_running_loop()
        self._sync = sync = SyncingThread(loop, is_blocking=self._store.is_blocking, is_alone=self._is_alone)
        self._resident = resident = ResidentSize()
        ports = CoordinatorPorts(
            self._clock, AsyncioScheduler(loop), sync, self._fatal, self._store.clock_mark(), resident.read
        )
        settings = self.settings
        config = LoopConfig(
            retain_ms=settings.retain_ms,
            retain_jobs=settings.retain_jobs,
            # Results are evicted in favour of waiting jobs: they use at most half of the memory.
            retain_bytes=min(settings.retain_bytes, self._memory_bytes // 2),
            retain_failed_ms=settings.failed_retention_ms,
        )
        coordinator = Coordinator(self.ledger, storage, ports, config)
        coordinator.observers.append(BugLog())
        log_doubts(coordinator.time.log)
        return coordinator

    def start(self, *, is_shared: bool = False) -> None:
        """Starts the coordinator: it accepts commands from now on.

        `is_shared`: other processes serve the same jobs in turn, so the end of a process says nothing about workers.
        """
        self._is_started = True
        if is_shared:
            self.coordinator.start(is_gone=lambda _: False)
        else:
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
        if self._sync is not None:
            self._sync.close()
        await self._store.close()
        if self._resident is not None:
            self._resident.close()

    def disown(self) -> None:
        """Releases a forked child's copy of the directory lock, so that the lock ends with the parent."""
        self._store.disown()

    def terms(self) -> LeaseTerms:
        """Returns the terms that every worker receives first."""
        settings, journal = self.settings, self.journal
        return LeaseTerms(settings.lease_ms, settings.heartbeat_ms, journal.epoch, journal.cluster_id.hex())

    def conditions(self) -> Sequence[Condition]:
        """Returns the conditions that an operator should check, although the ledger serves."""
        return [*self.coordinator.memory.conditions(), *self.snapshots.conditions()]


class BugLog:
    """An observer of a coordinator that logs only bugs."""

    def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
        """Does nothing."""

    def durable(self, position: int) -> None:
        """Does nothing."""

    def bug(self, command: object, error: Exception) -> None:
        """Logs the traceback; the client only got INTERNAL."""
        get_logger().error("bug", message=f"the command {type(command).__name__} failed", exc_info=error)
