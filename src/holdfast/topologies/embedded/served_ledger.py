"""A ledger served by this process: to itself over its ports, and to others over the directory's socket.

When the journal fails, the durable state is unknown: every call in flight fails without a reply, and the directory must
be opened again.
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
from holdfast.topologies.embedded.blocking_ledger import BlockingLedger

if TYPE_CHECKING:
    from holdfast.server.unix_socket import SocketServer

T = TypeVar("T")


#: Without totals: there is no HTTP server that could return them.
_DECLARED = LEDGER.served(__version__, has_totals=False)


class DirectoryCapabilities:
    """`CapabilityApi` of a ledger that this process serves."""

    async def capabilities(self) -> Capabilities:
        """Returns all capabilities of a ledger except totals."""
        return _DECLARED


class ServedLedger:
    """One opening of a ledger. `lost` is set when it has ended, for whatever reason."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self._log = get_logger()
        self._settings = settings
        self.core = LedgerCore(settings, self._fail, clock, is_alone=self._is_alone)
        self.lost = asyncio.Event()
        self._calls: set[asyncio.Task[Any]] = set()
        self._is_failed = False
        #: Opening and giving up may happen on two threads; the later of the two closes the journal.
        self._deciding = threading.Lock()
        self._is_open = False
        self._is_given_up = False
        self._socket: SocketServer | None = None
        self._local: LocalWork
        self.ports: LinkPorts
        self._blocking_calls: BlockingLedger

    async def open(self) -> None:
        """Recovers and serves; `DirectoryLockedError` if another process does."""
        recovering = asyncio.ensure_future(asyncio.to_thread(self._recover))
        try:
            await asyncio.shield(recovering)
        except asyncio.CancelledError:
            # The opening was canceled, but its thread cannot be. The thread closes the journal, even if this loop ends
            # first.
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
        """Opens a ledger in memory, without recovery and without a socket."""
        self.core.open()
        self._start()

    def _is_alone(self) -> bool:
        """Whether only callers of this process use the ledger: neither a worker nor another process is connected."""
        return not self._local.is_used and (self._socket is None or not self._socket.is_used)

    def _recover(self) -> None:
        """Recovers the ledger, on a thread of its own."""
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
        core = self.core
        core.prepare()
        self.ports = LinkPorts(core.jobs, core.admin, core.feed, core.schedules, DirectoryCapabilities())
        self._blocking_calls = BlockingLedger(asyncio.get_running_loop(), core.jobs, self.lost)
        self._local = LocalWork(core.work.dispatcher, core.terms())
        core.start()

    async def _listen(self) -> None:
        # Imported here because only a process that serves others needs protobuf.
        from holdfast.server.backend import Backend  # noqa: PLC0415
        from holdfast.server.unix_socket import SOCKET_NAME, SocketServer  # noqa: PLC0415

        core = self.core
        backend = Backend(core.jobs, core.work, core.admin, core.feed, core.schedules, declared=_DECLARED)
        server = SocketServer(backend, core.terms())
        try:
            await server.start(Path(self._settings.data) / SOCKET_NAME)
        except UnavailableError as error:  # not every file system supports sockets
            self._log.warning(
                "socket_unavailable",
                message=f"{error.message}; other processes must wait until this one closes the directory",
            )
            return
        self._socket = server

    async def call(
        self, use: Callable[[LinkPorts], Awaitable[T]], *, is_repeatable: bool = True, is_waiting: bool = False
    ) -> T:
        """Returns the response; `UnavailableError` if the journal fails before it. Repeats no call."""
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            return await use(self.ports)
        except asyncio.CancelledError:
            if not self._is_failed or task.uncancel():
                raise
            raise UnavailableError("the journal failed before the call was answered", reason="JOURNAL_FAILED") from None
        finally:
            self._calls.discard(task)

    def stream(self, use: Callable[[LinkPorts], AsyncIterator[T]]) -> AsyncIterator[T]:
        """Returns the items of a stream."""
        return use(self.ports)

    def blocking_calls(self) -> BlockingLedger:
        """Returns the API for other threads."""
        return self._blocking_calls

    async def work(self) -> WorkApi:
        """Returns a `WorkApi` whose sessions call the ledger directly."""
        return self._local

    async def close(self) -> None:
        """Ends all sessions, answers decided calls, and releases the directory. Workers keep their leases."""
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
        """Releases the lock of the directory in a forked child; the parent keeps its own."""
        self.core.disown()

    def _fail(self, error: BaseException) -> None:
        """Handles a failed journal. Called in the middle of a decision, so the rest is scheduled for later."""
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


class MemoryLink(ServedLedger):
    """`memory://`: the link to a ledger that no other process can reach, and that ends with this process."""

    is_private = True

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        """Opens it at once, on the loop that the link belongs to: until then no other thread can find it."""
        super().__init__(settings, clock)
        self.open_at_once()


def _look_at(recovering: "asyncio.Future[None]") -> None:
    """Retrieves the exception so that asyncio does not log it."""
    if not recovering.cancelled():
        recovering.exception()
