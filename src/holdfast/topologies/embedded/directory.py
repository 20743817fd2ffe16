"""A directory of jobs that any number of processes open: one of them serves it, the others connect to that one.

A process that opens the directory tries to take its lock. With the lock, it recovers the journal and listens on
`holdfast.sock`; without it, it connects. When the connection is lost, it tries both again, so that the directory passes
on to the next process, and repeatable calls in progress are sent again to that process.

Invariants: only the holder of the lock touches the journal or the socket's file; a side that is lost is not used again.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from holdfast.client.blocking_client import BlockingClient
from holdfast.client.endpoints import UnixEndpoint
from holdfast.client.link import BlockingCalls, LinkPorts
from holdfast.client.reconnect_policy import PATIENCE_S, ReconnectPolicy
from holdfast.client.remote import RemoteJobs
from holdfast.client.retry_policy import NoRetryPolicy
from holdfast.client.wire_transport import WireTransport
from holdfast.client.wire_work import WireWork
from holdfast.errors import HoldfastError, UnavailableError
from holdfast.journal.errors import DirectoryLockedError
from holdfast.ledger.ports import Clock
from holdfast.ports import WorkApi
from holdfast.server.unix_socket import SOCKET_NAME
from holdfast.settings import Settings
from holdfast.topologies.embedded.served_ledger import ServedLedger
from holdfast.topologies.fork_handlers import let_go_of_sockets

T = TypeVar("T")

#: The first and the longest pause between attempts, while another process has the lock and does not listen yet.
_PAUSE_S_FIRST = 0.005
_PAUSE_S_MAX = 0.2


class DirectoryClient:
    """The side of a process that does not serve. `lost` is set when the serving process is gone."""

    def __init__(self, endpoint: UnixEndpoint, transport: WireTransport) -> None:
        self._endpoint = endpoint
        self._transport = transport
        remote = RemoteJobs(transport, NoRetryPolicy())
        self._ports = LinkPorts(remote, remote, remote, remote.schedules, remote)
        self._blocking_calls = BlockingClient(endpoint)
        self.lost = asyncio.Event()
        self._watching = asyncio.create_task(self._watch())

    @classmethod
    async def to(cls, path: Path) -> "DirectoryClient":
        """Connects; `UnavailableError` if no process listens."""
        endpoint = UnixEndpoint(path)
        return cls(endpoint, await WireTransport.connect(endpoint))

    async def _watch(self) -> None:
        await self._transport.lost()
        self.lost.set()

    async def call(self, use: Callable[[LinkPorts], Awaitable[T]]) -> T:
        """Returns the response; `UnavailableError` if the connection is lost before it arrives."""
        return await use(self._ports)

    def stream(self, use: Callable[[LinkPorts], AsyncIterator[T]]) -> AsyncIterator[T]:
        """Returns the items of a stream."""
        return use(self._ports)

    def blocking_calls(self) -> BlockingClient:
        """Returns the API for other threads, over the socket."""
        return self._blocking_calls

    async def work(self) -> WorkApi:
        """Returns a `WorkApi` that opens a connection for each session."""
        return WireWork(self._endpoint)

    async def close(self) -> None:
        """Ends the connection."""
        self._watching.cancel()
        self.lost.set()
        self._blocking_calls.close()
        await self._transport.close()

    def disown(self) -> None:
        """Does nothing: `DirectoryLink.disown` drops the socket with all others."""


Side = ServedLedger | DirectoryClient


class DirectoryLink:
    """A link to the process that serves the directory, which may be this one."""

    is_private = False

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        # The working directory may change; the jobs stay where they were.
        self._settings = msgspec.structs.replace(settings, data=str(Path(settings.data).absolute()))
        self._path = Path(self._settings.data) / SOCKET_NAME
        self._clock = clock
        self._side: Side | None = None
        self._opening: asyncio.Task[Side] | None = None
        self._following: asyncio.Task[None] | None = None
        self._is_closed = False

    async def call(
        self, use: Callable[[LinkPorts], Awaitable[T]], *, is_repeatable: bool = True, is_waiting: bool = False
    ) -> T:
        """Returns the response of the process that serves at that time."""
        reconnect_policy = ReconnectPolicy()
        while True:
            reconnect_policy.begin()
            side = self._side
            if side is None or side.lost.is_set():
                side = await self._opened()
            try:
                return await side.call(use)
            except HoldfastError as error:
                if not is_repeatable or self._is_closed:
                    raise
                await reconnect_policy.bear(error)

    async def stream(self, use: Callable[[LinkPorts], AsyncIterator[T]]) -> AsyncIterator[T]:
        """Yields the items of a stream; after a lost connection it restarts at the next serving process."""
        reconnect_policy = ReconnectPolicy()
        while True:
            reconnect_policy.begin()
            side = await self._opened()
            try:
                async for item in side.stream(use):
                    yield item
            except HoldfastError as error:
                if self._is_closed:
                    raise
                await reconnect_policy.bear(error)
            else:
                return

    def blocking_calls(self) -> BlockingCalls | None:
        """Returns the API of the serving process, unless it has just ended."""
        side = self._side
        return side.blocking_calls() if side is not None and not side.lost.is_set() else None

    async def work(self) -> WorkApi:
        """Returns the work API of the serving process."""
        return await (await self._opened()).work()

    async def close(self) -> None:
        """Releases the directory at once, if this process serves it."""
        self._is_closed = True
        for task in (self._following, self._opening):
            if task is not None and not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, HoldfastError):
                    await task
        if self._side is not None:
            await self._side.close()

    def disown(self) -> None:
        """In a forked child: closes the lock and the socket, so that another process can take them."""
        if self._side is not None:
            self._side.disown()
        let_go_of_sockets()

    async def _opened(self) -> Side:
        if self._is_closed:
            raise UnavailableError("the app is closed", reason="APP_CLOSED")
        if self._side is not None and not self._side.lost.is_set():
            return self._side
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._end_opening)
        # Many callers wait for the same task; a caller that gives up does not cancel it for the others.
        return await asyncio.shield(self._opening)

    def _end_opening(self, opening: "asyncio.Task[Side]") -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # retrieved, so that asyncio does not log it; waiting callers raise it

    async def _open(self) -> Side:
        deadline_s, pause_s = time.monotonic() + PATIENCE_S, _PAUSE_S_FIRST
        while True:
            side = await self._serve_or_connect(deadline_s)
            if side is not None:
                self._side = side
                self._following = asyncio.create_task(self._follow(side))
                return side
            await asyncio.sleep(random.uniform(0, pause_s))
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    async def _serve_or_connect(self, deadline_s: float) -> Side | None:
        served_ledger = ServedLedger(self._settings, self._clock)
        try:
            await served_ledger.open()
        except DirectoryLockedError as locked:
            try:
                return await DirectoryClient.to(self._path)
            except UnavailableError as error:
                if time.monotonic() < deadline_s:
                    return None  # it may still be recovering, or have just ended
                raise UnavailableError(
                    f"{locked.message}: it has the directory and does not listen in it ({error.message})",
                    reason="DIRECTORY_LOCKED",
                ) from error
        return served_ledger

    async def _follow(self, side: Side) -> None:
        """Opens the directory again when a side is lost, even while this process makes no call."""
        await side.lost.wait()
        if not self._is_closed:
            if isinstance(side, DirectoryClient):
                await side.close()
            # The next call raises it. At the interpreter's end no thread can be started, and no call follows.
            with contextlib.suppress(HoldfastError, RuntimeError):
                await self._opened()
