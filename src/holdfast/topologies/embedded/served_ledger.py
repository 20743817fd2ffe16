"""A ledger that this process serves: to itself over its ports, and to others over the socket of its directory.

When the journal fails, what is durable is unknown: every call under way is given up as unanswered, and the directory
can only be opened anew.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast import __version__
from holdfast.client.link import LinkPorts
from holdfast.core.capabilities import LEDGER, Capabilities
from holdfast.errors import UnavailableError
from holdfast.ledger.local_work import LocalWork
from holdfast.ledger.ports import Clock
from holdfast.ledger.service import LedgerCore
from holdfast.observe.logs import get_logger
from holdfast.ports import WorkApi
from holdfast.settings import Settings
from holdfast.topologies.embedded.near_ledger import NearLedger

if TYPE_CHECKING:
    from holdfast.server.unix_socket import SocketServer

T = TypeVar("T")


#: Nothing is counted here: there is no HTTP server that could be asked for it.
_DECLARED = LEDGER.served(__version__, has_totals=False)


class DirectoryCapabilities:
    """`CapabilityApi` of a ledger that this process serves."""

    async def capabilities(self) -> Capabilities:
        """Everything but totals."""
        return _DECLARED


class Serving:
    """One reign over one ledger. `lost` is set when it is over, however that came."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self._log = get_logger()
        self._settings = settings
        self.core = LedgerCore(settings, self._fail, clock)
        self.lost = asyncio.Event()
        self._calls: set[asyncio.Task[Any]] = set()
        self._is_failed = False
        #: Who opens and who gives up may be on two threads; the last of them gives the directory back.
        self._deciding = threading.Lock()
        self._is_open = False
        self._is_given_up = False
        self._socket: SocketServer | None = None
        self._local: LocalWork
        self.ports: LinkPorts
        self.near: NearLedger

    async def open(self) -> None:
        """Recovers and serves. `DirectoryLockedError` if somebody else does."""
        recovering = asyncio.ensure_future(asyncio.to_thread(self._recover))
        try:
            await asyncio.shield(recovering)
        except asyncio.CancelledError:
            # Whoever opens gave up; the thread cannot. It gives back what it gets, even if this loop ends before it.
            recovering.add_done_callback(_look_at)
            self._give_up()
            await asyncio.wait([recovering])
            raise
        try:
            self._start()
            await self._listen()
        except BaseException:
            await self.close()
            raise

    def open_at_once(self) -> None:
        """Serves a ledger in memory: there is nothing to wait for, and nobody to listen to."""
        self.core.open()
        self._start()

    def _recover(self) -> None:
        """On a thread of its own."""
        self.core.open()
        with self._deciding:
            self._is_open = True
            if self._is_given_up:
                self.core.journal.close()

    def _give_up(self) -> None:
        with self._deciding:
            self._is_given_up = True
            if self._is_open:
                self.core.journal.close()

    def _start(self) -> None:
        core, settings = self.core, self._settings
        core.prepare()
        self.ports = LinkPorts(core.jobs, core.admin, core.feed, core.schedules, DirectoryCapabilities())
        self.near = NearLedger(asyncio.get_running_loop(), core.jobs, self.lost)
        self._local = LocalWork(core.work.dispatcher, lease_ms=settings.lease_ms, heartbeat_ms=settings.heartbeat_ms)
        core.start()

    async def _listen(self) -> None:
        # Only who serves others pays for protobuf.
        from holdfast.server.backend import Backend  # noqa: PLC0415
        from holdfast.server.unix_socket import SOCKET_NAME, SocketServer  # noqa: PLC0415

        core = self.core
        backend = Backend(core.jobs, core.work, core.admin, core.feed, core.schedules, declared=_DECLARED)
        server = SocketServer(backend, core.welcome())
        try:
            await server.start(Path(self._settings.data) / SOCKET_NAME)
        except UnavailableError as error:  # not every file system can hold a socket
            self._log.warning("socket_unavailable", message=f"{error.message}; other processes have to wait")
            return
        self._socket = server

    async def call(self, use: Callable[[LinkPorts], Awaitable[T]]) -> T:
        """The answer; `UnavailableError` if the journal fails before there is one."""
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            return await use(self.ports)
        except asyncio.CancelledError:
            if not self._is_failed or task.uncancel():
                raise
            raise UnavailableError("the journal failed before there was an answer", reason="JOURNAL_FAILED") from None
        finally:
            self._calls.discard(task)

    def stream(self, use: Callable[[LinkPorts], AsyncIterator[T]]) -> AsyncIterator[T]:
        """What a stream yields."""
        return use(self.ports)

    def work(self) -> WorkApi:
        """Sessions without a wire."""
        return self._local

    async def close(self) -> None:
        """Tells everybody, answers what was decided, and gives the directory back. Leases stay with their workers."""
        if self._is_failed:
            return
        self.lost.set()
        if hasattr(self, "ports"):
            self._local.close()
            self.core.dismiss()
        if self._socket is not None:
            await self._socket.stop()
        await self.core.close()

    def disown(self) -> None:
        """In a forked child: the claim on the directory is the parent's alone."""
        self.core.disown()

    def _fail(self, error: BaseException) -> None:
        """The journal failed, in the middle of a decision: everything else happens after it."""
        if not self._is_failed:
            self._is_failed = True
            self._log.critical("journal_failed", message=str(error))
            asyncio.get_running_loop().call_soon(self._abandon)

    def _abandon(self) -> None:
        self._local.close()
        self.core.dismiss()
        for task in self._calls:
            task.cancel()
        self._closing = asyncio.ensure_future(self._end())

    async def _end(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(Exception):
                await self._socket.stop(0)
        await self.core.abandon()
        self.lost.set()


def _look_at(recovering: "asyncio.Future[None]") -> None:
    """Nobody waits for its error any more."""
    if not recovering.cancelled():
        recovering.exception()
