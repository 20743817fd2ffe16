"""`holdfast://host:port`: a link to a server, over gRPC."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from holdfast.client.access import ANYBODY, Access
from holdfast.client.grpc_transport import GrpcCarrier
from holdfast.client.link import ClientLink, LinkPorts, Near
from holdfast.client.near_socket import NearSocket
from holdfast.client.remote import RemoteJobs
from holdfast.client.retry_policy import Once
from holdfast.client.socket_transport import SocketCarrier
from holdfast.client.work_stream import StreamWork
from holdfast.errors import HoldfastError
from holdfast.ports import Stats, WorkApi
from holdfast.settings import is_loopback

T = TypeVar("T")


class Remote(ClientLink):
    """One channel for everything, and the socket of a server on this machine for sync callers."""

    def __init__(self, address: str, access: Access = ANYBODY) -> None:
        self._address = address
        self._access = access
        self._carrier = GrpcCarrier(address, access)
        super().__init__(RemoteJobs(self._carrier, joins=True))
        self._is_here = is_loopback(address.rpartition(":")[0].strip("[]"))
        #: The Unix socket of the same server, for sync callers, and the stream through which it was found.
        self._near: tuple[NearSocket, object] | None = None
        self._looking: tuple[asyncio.Task[None], object] | None = None

    async def call(
        self, use: Callable[[LinkPorts], Awaitable[T]], *, is_repeatable: bool = True, is_waiting: bool = False
    ) -> T:
        """Returns the response; after a call that does not wait, looks for the server's Unix socket."""
        answer = await super().call(use, is_repeatable=is_repeatable, is_waiting=is_waiting)
        if not (is_waiting and is_repeatable):
            self._look_near()
        return answer

    def _look_near(self) -> None:
        """Looks for the server's Unix socket, once per stream."""
        line = self._carrier.line
        if self._is_here and line is not None and (self._looking is None or self._looking[1] is not line):
            self._looking = asyncio.create_task(self._find_near(line)), line

    async def _find_near(self, line: object) -> None:
        """Finds the socket of the server's directory, if it is on this machine: calls over it are much faster."""
        with contextlib.suppress(HoldfastError):
            here = await self._ports.admin.stats()
            if here.socket and await _is_same(Path(here.socket), here):
                self._near = NearSocket(Path(here.socket)), line

    def near(self) -> Near | None:
        """Returns the same server's Unix socket, as long as the stream to the server is open."""
        near = self._near
        return near[0] if near is not None and near[1] is self._carrier.line else None

    async def work(self) -> WorkApi:
        """Returns an API whose sessions have a gRPC stream each."""
        return StreamWork(self._address, self._access)

    async def close(self) -> None:
        """Closes the channel."""
        if self._looking is not None:
            self._looking[0].cancel()
        if self._near is not None:
            self._near[0].close()
        await super().close()


async def _is_same(path: Path, server: Stats) -> bool:
    """Whether the socket belongs to the same server: in another container the path may be another file."""
    carrier = await SocketCarrier.connect(path)
    try:
        there = await RemoteJobs(carrier, Once()).stats()
    finally:
        await carrier.close()
    return (there.cluster_id, there.epoch) == (server.cluster_id, server.epoch)
