"""The places in which a ledger keeps its journal: a directory, or memory.

A store opens the journal and rebuilds the state from it. While a coordinator writes the journal, the store makes
snapshots, indexes history, and removes what is no longer needed. The coordinator itself uses only `Storage`.
"""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from holdfast import limits
from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.owner import Ownership
from holdfast.errors import FailedPreconditionError
from holdfast.journal.descriptors import DescriptorReserve
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.disk import Disk
from holdfast.journal.file import FileJournal
from holdfast.journal.memory import MemoryJournal
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.port import Journal, JournalConfig
from holdfast.ledger.asyncio_shell import SyncingThread
from holdfast.ledger.coordinator import Coordinator
from holdfast.ledger.job_index import IndexKeeper, JobIndex
from holdfast.ledger.journal_history import JournalHistory
from holdfast.ledger.log_clock import ClockMark, leave_marks, read_mark
from holdfast.ledger.node_identity import claim
from holdfast.ledger.past_events import PastEvents
from holdfast.ledger.recovery import Progress, recover
from holdfast.ledger.snapshot_keeper import SnapshotHealth, SnapshotKeeper
from holdfast.ledger.snapshot_policy import KeeperConfig
from holdfast.ledger.snapshot_process import index_command, maker_command
from holdfast.observe.logs import get_logger
from holdfast.process.helper_process import HelperProcess
from holdfast.process.private_paths import prepare_directory
from holdfast.settings import Settings

OpenDisk = Callable[[Path], Disk]


class LedgerStore(Protocol):
    """One opening of one store."""

    #: Whether writing to the journal may block, so that it needs a thread.
    is_blocking: bool
    #: Counts of made and failed snapshots.
    snapshots: SnapshotHealth
    #: The journal; there is none before `open`.
    journal: Journal

    def open(self, config: LedgerConfig, now_ms: int, progress: Progress) -> Ledger:
        """Opens the journal and returns the state; may take long, changes no job, and may run on any thread."""
        ...

    def clock_mark(self) -> ClockMark | None:
        """Returns the clocks of the previous process, if they are known."""
        ...

    def attach(self, coordinator: Coordinator) -> PastEvents | None:
        """Starts to look after the journal that the coordinator writes; returns its past events, if they are kept."""
        ...

    def disown(self) -> None:
        """Releases a forked child's copy of the lock, so that the lock ends with the parent."""
        ...

    async def close(self) -> None:
        """Ends helper processes and threads, and closes the journal."""
        ...


class MemoryStore:
    """A journal that ends with the process, and keeps no frames."""

    is_blocking = False

    def __init__(self) -> None:
        self.snapshots = SnapshotHealth()
        self.journal: Journal

    def open(self, config: LedgerConfig, now_ms: int, progress: Progress) -> Ledger:
        """Returns an empty ledger; without retention on disk, its request ids need a limit."""
        del now_ms, progress
        self.journal = MemoryJournal(cluster_id=secrets.token_bytes(16), keeps_frames=False)
        keys_max = config.dedup_keys_max or limits.DEDUP_KEYS_DEFAULT
        return Ledger(LedgerConfig(config.aging_ms, keys_max, config.memory_bytes))

    def clock_mark(self) -> ClockMark | None:
        """Returns None: there was no previous process."""
        return None

    def attach(self, coordinator: Coordinator) -> PastEvents | None:
        """Returns None: no event is kept."""
        del coordinator
        return None

    def disown(self) -> None:
        """Does nothing: there is no lock."""

    async def close(self) -> None:
        """Closes the journal."""
        self.journal.close()


class DirectoryStore:
    """Segments, snapshots and indexes in a directory that this process has locked."""

    is_blocking = True

    def __init__(self, settings: Settings, ownership: Ownership | None, open_disk: OpenDisk = OsDisk) -> None:
        """`ownership` is None without nodes."""
        self._settings = settings
        self._path = Path(settings.data)
        self._ownership = ownership
        self._open_disk = open_disk
        self._opened: Disk | None = None
        self._helpers: list[HelperProcess] = []
        self._aside: SyncingThread | None = None
        self.snapshots = SnapshotHealth()
        self.journal: Journal

    def open(self, config: LedgerConfig, now_ms: int, progress: Progress) -> Ledger:
        """Locks the directory and recovers; on failure, raises an error that says what to do."""
        try:
            return self._recovered(config, now_ms, progress)
        except OSError as error:
            raise FailedPreconditionError(
                f"{self._settings.data!r} cannot be the data directory: {error.strerror or error};"
                " choose another, or make it a directory that this user may write",
                reason="DATA_UNUSABLE",
            ) from error

    def _recovered(self, config: LedgerConfig, now_ms: int, progress: Progress) -> Ledger:
        claim(self._path, self._ownership)
        prepare_directory(self._path)
        self._opened = self._open_disk(self._path)
        recovered = recover(
            self._disk,
            _journal_config(self._settings.segment_bytes),
            config,
            now_ms=now_ms,
            new_cluster_id=secrets.token_bytes(16),
            progress=progress,
        )
        self.journal = recovered.journal
        for warning in recovered.warnings:
            get_logger().warning("recovery", message=warning)
        try:
            claim(self._path, self._ownership)  # again, now that no other process can interfere
        except BaseException:
            self.journal.close()
            raise
        return recovered.ledger

    @property
    def _disk(self) -> Disk:
        assert self._opened is not None, "the store is open"
        return self._opened

    def clock_mark(self) -> ClockMark | None:
        """Returns the mark that the previous process left."""
        return read_mark(self._disk)

    def attach(self, coordinator: Coordinator) -> PastEvents | None:
        """Starts to make snapshots and indexes, each in a process of its own, and to remove files."""
        journal, loop = self.journal, asyncio.get_running_loop()
        assert isinstance(journal, FileJournal)
        leave_marks(self._disk, coordinator.time.log)
        self._keep_snapshots(coordinator, journal, loop)
        index, directory = JobIndex(journal, self._disk), self._settings.data
        indexer = HelperProcess(loop, lambda: index_command(directory), self._descriptors(), failed="index_failed")
        self._helpers.append(indexer)
        IndexKeeper(coordinator, journal, self._disk, index, indexer)
        return JournalHistory(journal, self._disk, index)

    def _keep_snapshots(self, coordinator: Coordinator, journal: FileJournal, loop: asyncio.AbstractEventLoop) -> None:
        settings, state = self._settings, coordinator.ledger.state
        maker = HelperProcess(loop, lambda: maker_command(settings.data, state.bytes_held), self._descriptors())
        self._helpers.append(maker)
        config = KeeperConfig(
            snapshot_bytes=settings.snapshot_bytes,
            history_ms=settings.history_ms,
            history_bytes=settings.history_bytes,
        )
        self._aside = SyncingThread(loop, name="holdfast-tidy")
        keeper = SnapshotKeeper(coordinator.commit, journal, DirectoryArchive(self._disk), maker, self._aside, config)
        self.snapshots = keeper.health

    def _descriptors(self) -> DescriptorReserve:
        """Returns the journal's descriptor reserve, which it lends to its helper processes."""
        return self._disk.descriptors if isinstance(self._disk, OsDisk) else DescriptorReserve()

    def disown(self) -> None:
        """Releases a forked child's copy of the directory lock, if there is one."""
        if self._opened is not None:
            self._opened.unlock()

    async def close(self) -> None:
        """Ends helper processes and the thread beside them, and closes the journal."""
        for helper in self._helpers:
            helper.stop()
        if self._aside is not None:
            self._aside.close()
        self.journal.close()
        for helper in self._helpers:
            await helper.ended()


def _journal_config(segment_bytes: int) -> JournalConfig:
    """Returns the configuration; reserves at most the size of one segment in advance."""
    config = JournalConfig(segment_bytes=segment_bytes, digest_version=DIGEST_VERSION)
    return replace(config, extent_bytes=min(config.extent_bytes, segment_bytes))
