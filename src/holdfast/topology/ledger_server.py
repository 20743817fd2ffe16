"""One ledger server in this process: a ledger, gRPC, HTTP, and the socket of its directory."""

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import __version__
from holdfast.backends.ledger.admin import LedgerAdmin
from holdfast.backends.ledger.feed import LedgerFeed
from holdfast.backends.ledger.jobs import LedgerJobs
from holdfast.backends.ledger.work import LedgerWork
from holdfast.clock import SystemClock
from holdfast.coordinator.loop import Coordinator
from holdfast.coordinator.ports import Storage
from holdfast.core.owner import Ownership
from holdfast.errors import UnavailableError
from holdfast.gateway.backend import Backend
from holdfast.gateway.grpc.server import GrpcServer
from holdfast.gateway.socket import SOCKET_NAME, SocketServer
from holdfast.journal.file import FileJournal
from holdfast.journal.memory import MemoryJournal
from holdfast.logs import get_logger
from holdfast.observe.logging import ByteStream, line_writer
from holdfast.observe.transitions import TransitionLog
from holdfast.settings import Settings
from holdfast.topology.ledger_core import LedgerCore
from holdfast.topology.protecting import protect

if TYPE_CHECKING:
    from holdfast.gateway.http.server import HttpServer
    from holdfast.topology.measuring import Metrics

#: How long calls under way may take when the server stops.
GRACE_S = 2.0


class LedgerServer:
    """Everything between a directory and a port. `start`, then `stop`; it cannot be started again."""

    def __init__(
        self, settings: Settings, *, log_stream: ByteStream | None = None, ownership: Ownership | None = None
    ) -> None:
        """`ownership` is that of a node."""
        self._settings = settings
        self._log_stream: ByteStream = log_stream or sys.stderr.buffer
        self._log = get_logger()
        self._core = LedgerCore(settings, self._die, ownership=ownership)
        self._transitions: TransitionLog | None = None
        self.address = ""
        self._metrics: Metrics | None = None
        self.metrics_address = ""
        #: A node owns a part of the jobs, and HTTP is for all of them.
        self._has_http = not settings.no_http and ownership is None
        self._http: HttpServer | None = None
        self.http_address = ""

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
        """Recovers, serves, and returns the address; errors say what to do, and change no job."""
        self._protection = protect(self._settings)
        guard, certificates = self._protection.guard, self._protection.certificates
        core = self._core
        core.open()
        self._observe(core.prepare(self._measured(core.journal)))
        core.start()
        self.backend = Backend(core.jobs, core.work, core.admin, core.feed, core.schedules)
        reflection = self._settings.reflection
        self._grpc = GrpcServer(
            self.backend, core.welcome(), has_reflection=reflection, guard=guard, certificates=certificates
        )
        self._socket = SocketServer(self.backend, core.welcome())
        if self._has_http:
            self._http = self._http_server()
        try:
            await self._listen()
        except BaseException:
            await self._socket.stop(0)
            await self._stop_http(0)
            await self._close()
            raise
        guard.start()
        if self._metrics is not None:
            self._metrics.set_ready(is_ready=True)
        self._log.info(
            "serving",
            grpc=self.address,
            http=self.http_address,
            epoch=core.journal.epoch,
            jobs=len(core.ledger.book.jobs),
        )
        return self.address

    def _observe(self, coordinator: Coordinator) -> None:
        if self._metrics is not None:
            self._metrics.watch(coordinator)
        writer = line_writer(self._settings.log_format, self._log_stream)
        self._transitions = TransitionLog(writer, "holdfast", coordinator.later, self._settings.log_level)
        coordinator.observers.append(self._transitions)

    async def _listen(self) -> None:
        settings = self._settings
        if not settings.is_in_memory:
            await self._serve_directory()
        if self._metrics is not None and settings.metrics_port:
            self.metrics_address = await self._metrics.start(settings.host, settings.metrics_port)
        if self._http is not None:
            self.http_address = await self._http.start(settings.host, settings.http_port)
        self.address = await self._grpc.start(settings.host, settings.port)

    async def _serve_directory(self) -> None:
        """Whoever else opens the directory finds this server through the socket in it."""
        path = self._socket_path()
        try:
            await self._socket.start(path)
            self.admin.socket = str(path)
        except UnavailableError as error:  # not every file system can hold a socket
            self._log.warning("socket_unavailable", message=error.message)

    def _socket_path(self) -> Path:
        return Path(self._settings.data).absolute() / SOCKET_NAME

    async def drain(self) -> None:
        """Says that it goes away soon, and serves on."""
        if self._metrics is not None:
            self._metrics.set_ready(is_ready=False)
        await self._grpc.drain()

    async def stop(self) -> None:
        """Refuses new work, answers what was decided, closes the journal cleanly. Leases stay with their workers."""
        await self.drain()
        self._core.dismiss()
        await asyncio.gather(self._grpc.stop(GRACE_S), self._socket.stop(GRACE_S), self._stop_http(GRACE_S))
        await self._close()
        self._log.info("stopped")

    async def _close(self) -> None:
        self._protection.guard.stop()
        await self._core.close()
        if self._metrics is not None:
            await self._metrics.stop()
        if self._transitions is not None:
            self._transitions.flush()

    def _measured(self, journal: FileJournal | MemoryJournal) -> Storage:
        """The journal, measured if anybody can ask for it; without metrics nothing is counted or imported."""
        if not self._settings.metrics_port and not self._has_http:
            return journal
        from holdfast.topology.measuring import Metrics  # noqa: PLC0415 - costs a start that has no metrics nothing

        self._metrics = Metrics()
        return self._metrics.measured(journal)

    def _http_server(self) -> "HttpServer":
        """HTTP over the same ports."""
        # Who serves gRPC alone pays nothing for it.
        from holdfast.gateway.http.app import Application  # noqa: PLC0415
        from holdfast.gateway.http.securing import BrowserShield  # noqa: PLC0415
        from holdfast.gateway.http.server import HttpServer  # noqa: PLC0415
        from holdfast.gateway.http.system import Probes  # noqa: PLC0415

        metrics = self._metrics
        assert metrics is not None, "what is served over HTTP is measured"
        probes = Probes(
            version=__version__,
            started_at_ms=SystemClock().wall_ms(),
            is_ready=lambda: metrics.is_ready,
            metrics=metrics.page,
            totals=metrics.totals,
        )
        settings, certificates = self._settings, self._protection.certificates
        shield = BrowserShield(settings.host, settings.allowed_hosts.split(","))
        application = Application(self.backend, self._protection.guard, shield, probes)
        return HttpServer(application, tls=certificates.context if certificates is not None else None)

    async def _stop_http(self, grace_s: float) -> None:
        if self._http is not None:
            await self._http.stop(grace_s)

    def _die(self, error: BaseException) -> None:
        """The journal failed: what is durable is unknown, so nothing more may be answered by this process."""
        self._log.critical("journal_failed", message=str(error))
        self._log_stream.close()
        os._exit(70)
