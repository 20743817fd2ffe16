"""A ledger server in this process: a ledger, gRPC, HTTP, and the socket of its directory."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.owner import Ownership
from holdfast.errors import UnavailableError
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.port import Journal
from holdfast.ledger.admin_api import LedgerAdmin
from holdfast.ledger.coordinator import Coordinator
from holdfast.ledger.feed_api import LedgerFeed
from holdfast.ledger.job_api import LedgerJobs
from holdfast.ledger.ports import Storage
from holdfast.ledger.service import LedgerCore
from holdfast.ledger.session_messages import LeaseTerms
from holdfast.ledger.store import OpenDisk
from holdfast.ledger.work_api import LedgerWork
from holdfast.observe.log_setup import ByteStream, line_writer
from holdfast.observe.logs import get_logger
from holdfast.observe.transitions import TransitionLog
from holdfast.server.backend import Backend
from holdfast.server.conditions import local
from holdfast.server.early_ports import EarlyPorts
from holdfast.server.protection import Protection, protect
from holdfast.server.public_server import GRACE_S, PublicServer, is_measured
from holdfast.server.startup import Startup, recover_behind_ports
from holdfast.server.unix_socket import SOCKET_NAME, SocketServer
from holdfast.settings import Settings

if TYPE_CHECKING:
    from holdfast.server.ledger_metrics import Metrics


class LedgerServer:
    """The server of one directory, or of a ledger in memory. `start`, then `stop`; it cannot be started again."""

    def __init__(
        self,
        settings: Settings,
        *,
        log_stream: ByteStream | None = None,
        ownership: Ownership | None = None,
        socket: Path | None = None,
        listening: Callable[[], None] | None = None,
        open_disk: OpenDisk = OsDisk,
    ) -> None:
        """`ownership` is that of a node; `socket` is the socket's path for a server without a directory.

        `listening` is called once the directory is locked and the ports are open, before the recovery has ended.
        """
        #: A node owns only a part of the jobs, so it serves no HTTP.
        self._settings = settings if ownership is None else msgspec.structs.replace(settings, no_http=True)
        self._log_stream: ByteStream = log_stream or sys.stderr.buffer
        self._log = get_logger()
        self._core = LedgerCore(settings, self._die, ownership=ownership, open_disk=open_disk)
        self._transitions: TransitionLog | None = None
        self._metrics: Metrics | None = None
        self._startup: Startup | None = None
        self._is_given_up = False
        #: By protocol, once the ports listen.
        self.addresses: dict[str, str] = {}
        self._listening = listening
        #: The path at which the socket will appear; None if there will be none.
        self.socket_path = socket if settings.is_in_memory else Path(settings.data).absolute() / SOCKET_NAME
        #: The path of the socket for processes of this user; empty if there is none.
        self.socket = ""

    @property
    def address(self) -> str:
        """The address for calls: gRPC, or the wire without gRPC."""
        return self.addresses.get("grpc", "") or self.addresses.get("wire", "")

    @property
    def http_address(self) -> str:
        """The address of HTTP; empty if there is none."""
        return self.addresses.get("http", "")

    @property
    def metrics_address(self) -> str:
        """The address of the metrics port; empty if there is none."""
        return self.addresses.get("metrics", "")

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator of the ledger."""
        return self._core.coordinator

    @property
    def jobs(self) -> LedgerJobs:
        """The API for clients."""
        return self._core.jobs

    @property
    def work(self) -> LedgerWork:
        """The API for workers."""
        return self._core.work

    @property
    def admin(self) -> LedgerAdmin:
        """The API for administrators."""
        return self._core.admin

    @property
    def terms(self) -> LeaseTerms:
        """The terms that every worker receives first."""
        return self._core.terms()

    @property
    def feed(self) -> LedgerFeed:
        """The feed of all events."""
        return self._core.feed

    async def start(self) -> str:
        """Listens, recovers, serves, and returns the address; errors say what to do, and change no job.

        During recovery the ports answer probes and refuse everything else. Raises `StartStoppedError` after `give_up`.
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
        """Serves the recovered ledger."""
        core = self._core
        self._observe(core.prepare(self._measured(core.journal)))
        core.start()
        self.backend = Backend(core.jobs, core.work, core.admin, core.feed, core.schedules)
        self.public_server = PublicServer(
            self.backend,
            self._settings,
            protection=protection,
            measures=self._metrics,
            terms=self.terms,
            conditions=local(core.conditions),
            early=early,
        )
        self._socket = SocketServer(self.public_server.backend, self.terms, self.public_server.budget)
        try:
            await self._listen()
        except BaseException:
            await self._socket.stop(0)
            raise
        jobs = len(core.ledger.state.jobs)
        self._log.info(
            "serving", grpc=self.addresses.get("grpc", ""), http=self.http_address, epoch=core.journal.epoch, jobs=jobs
        )
        return self.address

    def give_up(self) -> None:
        """Ends a start that is still recovering."""
        self._is_given_up = True
        if self._startup is not None:
            self._startup.stop()

    async def _recovered(self, protection: Protection) -> EarlyPorts | None:
        """Recovers in a thread while the ports are open; a failure leaves nothing open."""
        if self._settings.is_in_memory:
            self._core.open()
            return None
        self._startup = startup = Startup()
        if self._is_given_up:
            startup.stop()
        early = EarlyPorts(self._settings, protection, startup)

        async def open_ports() -> None:
            await early.open()
            self._now_listening(early.addresses)

        async def close_ports() -> None:
            await early.close()
            self.addresses = {}

        await recover_behind_ports(
            startup,
            self._core.open,
            open_ports=open_ports,
            close_ports=close_ports,
            discard=lambda _: self._core.journal.close(),
        )
        return early

    def _observe(self, coordinator: Coordinator) -> None:
        if self._metrics is not None:
            self._metrics.watch(coordinator, self._core.snapshots)
        writer = line_writer(self._settings.log_format, self._log_stream)
        self._transitions = TransitionLog(writer, "holdfast", coordinator.later, self._settings.log_level)
        coordinator.observers.append(self._transitions)

    async def _listen(self) -> None:
        if self.socket_path is not None:
            await self._serve_near(self.socket_path)
        addresses = await self.public_server.start()
        if not self.addresses:
            self._now_listening(addresses)

    def _now_listening(self, addresses: dict[str, str]) -> None:
        self.addresses = addresses
        if self._listening is not None:
            self._listening()

    async def _serve_near(self, path: Path) -> None:
        """Serves the socket, by which other processes that open the directory find this server."""
        try:
            await self._socket.start(path)
            self.socket = str(path)
            if not self._settings.is_in_memory:
                self.admin.socket = self.socket
        except UnavailableError as error:  # some file systems do not support sockets
            self._log.warning("socket_unavailable", message=error.message)

    async def drain(self) -> None:
        """Reports that the server will stop soon, and continues to serve."""
        await self.public_server.drain()

    async def stop(self) -> None:
        """Refuses new work, answers decided requests, and closes the journal. Workers keep their leases."""
        await self.drain()
        self._core.dismiss()
        await asyncio.gather(self.public_server.stop(GRACE_S), self._socket.stop(GRACE_S))
        await self._close()
        self._log.info("stopped")

    async def _close(self) -> None:
        await self._core.close()
        if self._transitions is not None:
            self._transitions.flush()

    def _measured(self, journal: Journal) -> Storage:
        """Returns the journal, measured if metrics are served; otherwise nothing is counted or imported."""
        if not is_measured(self._settings):
            return journal
        from holdfast.server.ledger_metrics import Metrics  # noqa: PLC0415 - not loaded by a server without metrics

        self._metrics = Metrics()
        return self._metrics.measured(journal)

    def _die(self, error: BaseException) -> None:
        """Ends the process after a journal failure: it is unknown what is durable, so no more replies may be sent."""
        self._log.critical("journal_failed", message=str(error))
        self._log_stream.close()
        os._exit(70)
