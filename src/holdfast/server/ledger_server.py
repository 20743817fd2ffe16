"""One ledger server in this process: a ledger, gRPC, HTTP, and the socket of its directory."""

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.owner import Ownership
from holdfast.errors import UnavailableError
from holdfast.journal.file import FileJournal
from holdfast.journal.memory import MemoryJournal
from holdfast.journal.os_disk import OsDisk
from holdfast.ledger.admin_api import LedgerAdmin
from holdfast.ledger.coordinator import Coordinator
from holdfast.ledger.feed_api import LedgerFeed
from holdfast.ledger.job_api import LedgerJobs
from holdfast.ledger.ports import Storage
from holdfast.ledger.service import LedgerCore, OpenDisk
from holdfast.ledger.work_api import LedgerWork
from holdfast.observe.logging import ByteStream, line_writer
from holdfast.observe.logs import get_logger
from holdfast.observe.transitions import TransitionLog
from holdfast.server.backend import Backend
from holdfast.server.early_ports import EarlyPorts
from holdfast.server.protection import Protection, protect
from holdfast.server.public_server import GRACE_S, Face, is_measured
from holdfast.server.startup import Startup
from holdfast.server.unix_socket import SOCKET_NAME, SocketServer
from holdfast.settings import Settings

if TYPE_CHECKING:
    from holdfast.server.ledger_metrics import Metrics


class LedgerServer:
    """Everything between a directory and a port. `start`, then `stop`; it cannot be started again."""

    def __init__(
        self,
        settings: Settings,
        *,
        log_stream: ByteStream | None = None,
        ownership: Ownership | None = None,
        socket: Path | None = None,
        open_disk: OpenDisk = OsDisk,
    ) -> None:
        """`ownership` is that of a node; `socket` is where one listens that has no directory to have it in."""
        #: A node owns a part of the jobs, and HTTP is for all of them.
        self._settings = settings if ownership is None else msgspec.structs.replace(settings, no_http=True)
        self._log_stream: ByteStream = log_stream or sys.stderr.buffer
        self._log = get_logger()
        self._core = LedgerCore(settings, self._die, ownership=ownership, open_disk=open_disk)
        self._transitions: TransitionLog | None = None
        self._metrics: Metrics | None = None
        self._startup: Startup | None = None
        self._is_given_up = False
        #: By protocol, from when it listens.
        self.addresses: dict[str, str] = {}
        self._socket_path = socket if settings.is_in_memory else Path(settings.data).absolute() / SOCKET_NAME
        #: Where processes of this user can ask, if anywhere.
        self.socket = ""

    @property
    def address(self) -> str:
        """Where gRPC is."""
        return self.addresses.get("grpc", "")

    @property
    def http_address(self) -> str:
        """Where HTTP is, if anywhere."""
        return self.addresses.get("http", "")

    @property
    def metrics_address(self) -> str:
        """Where the port for metrics is, if anywhere."""
        return self.addresses.get("metrics", "")

    @property
    def coordinator(self) -> Coordinator:
        """Who decides."""
        return self._core.coordinator

    @property
    def jobs(self) -> LedgerJobs:
        """What clients ask of."""
        return self._core.jobs

    @property
    def work(self) -> LedgerWork:
        """What workers ask of."""
        return self._core.work

    @property
    def admin(self) -> LedgerAdmin:
        """What operators ask of."""
        return self._core.admin

    @property
    def feed(self) -> LedgerFeed:
        """What happens."""
        return self._core.feed

    async def start(self) -> str:
        """Listens, recovers, serves, and returns the address; errors say what to do, and change no job.

        While it recovers, its ports answer probes and refuse everything else. `StartStoppedError` after `give_up`.
        """
        protection = protect(self._settings)
        early = await self._recovered(protection)
        try:
            return await self._serve(protection, early)
        except BaseException:
            if early is not None:
                await early.close()
            await self._close()
            raise

    async def _serve(self, protection: Protection, early: EarlyPorts | None) -> str:
        """Serves what was recovered."""
        core = self._core
        self._observe(core.prepare(self._measured(core.journal)))
        core.start()
        self.backend = Backend(core.jobs, core.work, core.admin, core.feed, core.schedules)
        self.face = Face(
            self.backend,
            self._settings,
            protection=protection,
            measures=self._metrics,
            welcome=core.welcome(),
            conditions=core.conditions,
            early=early,
        )
        self._socket = SocketServer(self.face.backend, core.welcome())
        try:
            await self._listen()
        except BaseException:
            await self._socket.stop(0)
            raise
        jobs = len(core.ledger.book.jobs)
        self._log.info("serving", grpc=self.address, http=self.http_address, epoch=core.journal.epoch, jobs=jobs)
        return self.address

    def give_up(self) -> None:
        """Ends a start that is still recovering."""
        self._is_given_up = True
        if self._startup is not None:
            self._startup.stop()

    async def _recovered(self, protection: Protection) -> EarlyPorts | None:
        """Recovers on a thread of its own, with the ports open meanwhile; a failure leaves nothing open.

        The ports are opened once the directory is claimed, so that a second server is told that it is the second one.
        """
        if self._settings.is_in_memory:
            self._core.open()
            return None
        self._startup = startup = Startup()
        if self._is_given_up:
            startup.stop()
        early = EarlyPorts(self._settings, protection, startup)
        recovering = asyncio.create_task(asyncio.to_thread(self._core.open, startup.tell))
        begun = asyncio.create_task(startup.begun())
        try:
            await asyncio.wait([recovering, begun], return_when=asyncio.FIRST_COMPLETED)
            if not recovering.done():
                await early.open()
                self.addresses = early.addresses
            await asyncio.shield(recovering)
            if not early.addresses:
                await early.open()
        except BaseException:
            startup.stop()
            await asyncio.wait([recovering])
            if not recovering.cancelled() and recovering.exception() is None:
                self._core.journal.close()
            await early.close()
            self.addresses = {}
            raise
        finally:
            begun.cancel()
        return early

    def _observe(self, coordinator: Coordinator) -> None:
        if self._metrics is not None:
            self._metrics.watch(coordinator, self._core.snapshots)
        writer = line_writer(self._settings.log_format, self._log_stream)
        self._transitions = TransitionLog(writer, "holdfast", coordinator.later, self._settings.log_level)
        coordinator.observers.append(self._transitions)

    async def _listen(self) -> None:
        if self._socket_path is not None:
            await self._serve_near(self._socket_path)
        self.addresses = await self.face.start()

    async def _serve_near(self, path: Path) -> None:
        """Whoever else opens the directory finds this server through the socket in it."""
        try:
            await self._socket.start(path)
            self.socket = str(path)
            if not self._settings.is_in_memory:
                self.admin.socket = self.socket
        except UnavailableError as error:  # not every file system can hold a socket
            self._log.warning("socket_unavailable", message=error.message)

    async def drain(self) -> None:
        """Says that it goes away soon, and serves on."""
        await self.face.drain()

    async def stop(self) -> None:
        """Refuses new work, answers what was decided, closes the journal cleanly. Leases stay with their workers."""
        await self.drain()
        self._core.dismiss()
        await asyncio.gather(self.face.stop(GRACE_S), self._socket.stop(GRACE_S))
        await self._close()
        self._log.info("stopped")

    async def _close(self) -> None:
        await self._core.close()
        if self._transitions is not None:
            self._transitions.flush()

    def _measured(self, journal: FileJournal | MemoryJournal) -> Storage:
        """The journal, measured if anybody can ask for it; without metrics nothing is counted or imported."""
        if not is_measured(self._settings):
            return journal
        from holdfast.server.ledger_metrics import Metrics  # noqa: PLC0415 - costs a start that has no metrics nothing

        self._metrics = Metrics()
        return self._metrics.measured(journal)

    def _die(self, error: BaseException) -> None:
        """The journal failed: what is durable is unknown, so nothing more may be answered by this process."""
        self._log.critical("journal_failed", message=str(error))
        self._log_stream.close()
        os._exit(70)
