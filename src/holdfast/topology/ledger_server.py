"""One ledger server in this process: journal, coordinator, gRPC."""

import asyncio
import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from holdfast import limits
from holdfast.backends.ledger.admin import LedgerAdmin
from holdfast.backends.ledger.feed import LedgerFeed
from holdfast.backends.ledger.jobs import LedgerJobs
from holdfast.backends.ledger.work import LedgerWork
from holdfast.clock import SystemClock
from holdfast.coordinator.asyncio_shell import AsyncioScheduler, SyncingThread
from holdfast.coordinator.feed import JournalPast
from holdfast.coordinator.loop import Coordinator, LoopConfig, World
from holdfast.coordinator.ports import Storage
from holdfast.coordinator.recovery import Recovered, recover
from holdfast.coordinator.sessions import SessionConfig
from holdfast.coordinator.snapshots import KeeperConfig, SnapshotKeeper
from holdfast.core.book import DIGEST_VERSION
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.errors import FailedPreconditionError, UnavailableError
from holdfast.gateway.backend import Backend
from holdfast.gateway.grpc.server import GrpcServer
from holdfast.gateway.socket import SOCKET_NAME, SocketServer
from holdfast.journal.file import FileJournal
from holdfast.journal.memory import MemoryJournal
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.port import JournalConfig
from holdfast.observe.logging import ByteStream, line_writer
from holdfast.observe.transitions import TransitionLog
from holdfast.proto import holdfast_pb2
from holdfast.settings import Settings
from holdfast.topology.snapshot_process import SnapshotProcess

if TYPE_CHECKING:
    from holdfast.topology.measuring import Metrics

#: How long calls under way may take when the server stops.
GRACE_S = 2.0


class LedgerServer:
    """Everything between a directory and a port. `start`, then `stop`; it cannot be started again."""

    def __init__(self, settings: Settings, *, log_stream: ByteStream | None = None) -> None:
        self._settings = settings
        self._log_stream: ByteStream = log_stream or sys.stderr.buffer
        self._log = structlog.get_logger()
        self._maker: SnapshotProcess | None = None
        self._transitions: TransitionLog | None = None
        self.address = ""
        self._metrics: Metrics | None = None
        self.metrics_address = ""

    async def start(self) -> str:
        """Recovers, serves, and returns the address; errors say what to do, and change no job."""
        loop = asyncio.get_running_loop()
        journal, ledger = self._open()
        self._journal = journal
        self._sync = SyncingThread(loop)
        world = World(SystemClock(), AsyncioScheduler(loop), self._sync, self._die)
        storage = self._measured(journal)
        self.coordinator = Coordinator(ledger, storage, world, self._loop_config())
        if self._metrics is not None:
            self._metrics.watch(self.coordinator)
        writer = line_writer(self._settings.log_format, self._log_stream)
        self._transitions = TransitionLog(writer, "holdfast", self.coordinator.later, self._settings.log_level)
        self.coordinator.observers.append(self._transitions)
        self._keep_snapshots(journal)
        session_config = SessionConfig(self._settings.lease_ms, self._settings.worker_timeout_ms)
        self.work = LedgerWork(self.coordinator, session_config)
        dispatcher = self.work.dispatcher
        self.jobs = LedgerJobs(self.coordinator, dispatcher.registry.all, progress=dispatcher.progress)
        past = JournalPast(journal, self._disk) if isinstance(journal, FileJournal) else None
        self.feed = LedgerFeed.over(self.coordinator, past)
        self.admin = LedgerAdmin(self.coordinator, dispatcher, epoch=journal.epoch, cluster_id=journal.cluster_id.hex())
        self.coordinator.start()
        self.backend = Backend(self.jobs, self.work, self.admin, self.feed)
        self._grpc = GrpcServer(self.backend, self._welcome(), has_reflection=self._settings.reflection)
        try:
            await self._serve_directory()
            if self._metrics is not None:
                self.metrics_address = await self._metrics.start(self._settings.host, self._settings.metrics_port)
            self.address = await self._grpc.start(self._settings.host, self._settings.port)
        except BaseException:
            await self._socket.stop(0)
            await self._close()
            raise
        if self._metrics is not None:
            self._metrics.set_ready(is_ready=True)
        self._log.info("serving", grpc=self.address, epoch=journal.epoch, jobs=len(ledger.book.jobs))
        return self.address

    async def _serve_directory(self) -> None:
        """Whoever else opens the directory finds this server through the socket in it."""
        self._socket = SocketServer(self.backend, self._welcome())
        if self._settings.is_in_memory:
            return
        try:
            await self._socket.start(Path(self._settings.data) / SOCKET_NAME)
        except UnavailableError as error:  # not every file system can hold a socket
            self._log.warning("socket_unavailable", message=error.message)

    async def drain(self) -> None:
        """Says that it goes away soon, and serves on."""
        if self._metrics is not None:
            self._metrics.set_ready(is_ready=False)
        await self._grpc.drain()

    async def stop(self) -> None:
        """Refuses new work, answers what was decided, closes the journal cleanly. Leases stay with their workers."""
        await self.drain()
        self.jobs.close()
        self.feed.close()
        await asyncio.gather(self._grpc.stop(GRACE_S), self._socket.stop(GRACE_S))
        await self._close()
        self._log.info("stopped")

    async def _close(self) -> None:
        stopped = asyncio.Event()
        self.coordinator.stop(stopped.set)
        await stopped.wait()
        if self._maker is not None:
            self._maker.stop()
        if self._metrics is not None:
            await self._metrics.stop()
        self._sync.close()
        self._journal.close()
        if self._transitions is not None:
            self._transitions.flush()

    def _measured(self, journal: FileJournal | MemoryJournal) -> Storage:
        """The journal, measured if anybody can ask for it; without metrics nothing is counted or imported."""
        if not self._settings.metrics_port:
            return journal
        from holdfast.topology.measuring import Metrics  # noqa: PLC0415 - costs a start that has no metrics nothing

        self._metrics = Metrics()
        return self._metrics.measured(journal)

    def _open(self) -> tuple[FileJournal | MemoryJournal, Ledger]:
        settings = self._settings
        if settings.is_in_memory:
            keys_max = settings.dedup_keys_max or limits.DEDUP_KEYS_DEFAULT
            ledger = Ledger(LedgerConfig(settings.aging_ms, keys_max))
            return MemoryJournal(cluster_id=secrets.token_bytes(16), keeps_frames=False), ledger
        try:
            recovered = self._recover()
        except OSError as error:
            raise FailedPreconditionError(
                f"{settings.data!r} cannot be the data directory: {error.strerror or error};"
                " choose another with --data, or make it a directory that this user may write",
                reason="DATA_UNUSABLE",
            ) from error
        for warning in recovered.warnings:
            self._log.warning("recovery", message=warning)
        return recovered.journal, recovered.ledger

    def _recover(self) -> Recovered:
        self._disk = OsDisk(Path(self._settings.data))
        return recover(
            self._disk,
            JournalConfig(segment_bytes=self._settings.segment_bytes, digest_version=DIGEST_VERSION),
            self._ledger_config(),
            now_ms=SystemClock().wall_ms(),
            new_cluster_id=secrets.token_bytes(16),
        )

    def _ledger_config(self) -> LedgerConfig:
        return LedgerConfig(self._settings.aging_ms, self._settings.dedup_keys_max)

    def _loop_config(self) -> LoopConfig:
        settings = self._settings
        return LoopConfig(
            retain_ms=settings.retain_ms, retain_jobs=settings.retain_jobs, retain_bytes=settings.retain_bytes
        )

    def _keep_snapshots(self, journal: FileJournal | MemoryJournal) -> None:
        if isinstance(journal, FileJournal):
            settings = self._settings
            self._maker = SnapshotProcess(asyncio.get_running_loop(), settings.data)
            config = KeeperConfig(settings.snapshot_bytes, settings.history_ms)
            SnapshotKeeper(self.coordinator, journal, self._disk, self._maker, config)

    def _welcome(self) -> holdfast_pb2.Welcome:
        settings = self._settings
        return holdfast_pb2.Welcome(
            lease_ms=settings.lease_ms,
            heartbeat_ms=settings.heartbeat_ms,
            epoch=self._journal.epoch,
            cluster_id=self._journal.cluster_id.hex(),
        )

    def _die(self, error: BaseException) -> None:
        """The journal failed: what is durable is unknown, so nothing more may be answered by this process."""
        self._log.critical("journal_failed", message=str(error))
        self._log_stream.close()
        os._exit(70)
