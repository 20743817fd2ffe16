"""`holdfast://host:port`: a link to a server, over gRPC."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from holdfast.client.access import ANYBODY, Access
from holdfast.client.blocking_link import NearSocket
from holdfast.client.grpc_transport import GrpcCarrier
from holdfast.client.link import LinkPorts, Near
from holdfast.client.reconnect_policy import Patience, patiently
from holdfast.client.remote import RemoteJobs
from holdfast.client.retry_policy import Once
from holdfast.client.socket_transport import SocketCarrier
from holdfast.client.work_stream import StreamWork
from holdfast.errors import HoldfastError
from holdfast.ports import Stats, WorkApi
from holdfast.settings import is_loopback

T = TypeVar("T")


class Remote:
    """One channel for everything; calls are repeated by the client's own profile."""

    is_private = False

    def __init__(self, address: str, access: Access = ANYBODY) -> None:
        self._address = address
        self._access = access
        self._carrier = GrpcCarrier(address, access)
        self._jobs = RemoteJobs(self._carrier, joins=True)
        self._ports = LinkPorts(self._jobs, self._jobs, self._jobs, self._jobs.schedules, self._jobs)
        self._is_here = is_loopback(address.rpartition(":")[0].strip("[]"))
        #: Whom sync callers ask on their own thread, and the stream whose server that is.
        self._near: tuple[NearSocket, object] | None = None
        self._looking: tuple[asyncio.Task[None], object] | None = None

    async def call(
        self, use: Callable[[LinkPorts], Awaitable[T]], *, is_repeatable: bool = True, is_waiting: bool = False
    ) -> T:
        """The answer; only who waits for something anyway waits for a server that is being replaced."""
        if is_waiting and is_repeatable:
            return await patiently(lambda: use(self._ports))
        answer = await use(self._ports)
        self._look_near()
        return answer

    def _look_near(self) -> None:
        """Looks once for each stream."""
        line = self._carrier.line
        if self._is_here and line is not None and (self._looking is None or self._looking[1] is not line):
            self._looking = asyncio.create_task(self._find_near(line)), line

    async def _find_near(self, line: object) -> None:
        """A server of this machine may be reached over the socket of its directory too, which is much quicker."""
        with contextlib.suppress(HoldfastError):
            here = await self._jobs.stats()
            if here.socket and await _is_same(Path(here.socket), here):
                self._near = NearSocket(Path(here.socket)), line

    async def stream(self, use: Callable[[LinkPorts], AsyncIterator[T]]) -> AsyncIterator[T]:
        """What a stream yields; after a loss it begins anew."""
        patience = Patience()
        while True:
            patience.begin()
            try:
                async for item in use(self._ports):
                    yield item
            except HoldfastError as error:
                await patience.bear(error)
            else:
                return

    def near(self) -> Near | None:
        """The same server over its socket, as long as the stream to it is open."""
        near = self._near
        return near[0] if near is not None and near[1] is self._carrier.line else None

    async def work(self) -> WorkApi:
        """Sessions over streams of their own."""
        return StreamWork(self._address, self._access)

    async def close(self) -> None:
        """Ends the channel."""
        if self._looking is not None:
            self._looking[0].cancel()
        if self._near is not None:
            self._near[0].close()
        await self._jobs.close()

    def disown(self) -> None:
        """A channel is of no use to a child, and is never touched there."""


async def _is_same(path: Path, server: Stats) -> bool:
    """Whether the socket there is the same server's: a path means something else in another container."""
    carrier = await SocketCarrier.connect(path)
    try:
        there = await RemoteJobs(carrier, Once()).stats()
    finally:
        await carrier.close()
    return (there.cluster_id, there.epoch) == (server.cluster_id, server.epoch)
