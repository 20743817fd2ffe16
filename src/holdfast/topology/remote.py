"""`holdfast://host:port`: a link to a server, over gRPC."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from holdfast.backends.ports import WorkApi
from holdfast.client.grpc_carrier import GrpcCarrier
from holdfast.client.remote import RemoteJobs
from holdfast.client.work_stream import StreamWork
from holdfast.errors import HoldfastError
from holdfast.topology.link import Near, Ports
from holdfast.topology.patience import Patience, patiently

T = TypeVar("T")


class Remote:
    """One channel for everything; calls are repeated by the client's own profile."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._jobs = RemoteJobs(GrpcCarrier(address))
        self._ports = Ports(self._jobs, self._jobs, self._jobs)

    async def call(
        self, use: Callable[[Ports], Awaitable[T]], *, is_repeatable: bool = True, is_waiting: bool = False
    ) -> T:
        """The answer; only who waits for something anyway waits for a server that is being replaced."""
        if is_waiting and is_repeatable:
            return await patiently(lambda: use(self._ports))
        return await use(self._ports)

    async def stream(self, use: Callable[[Ports], AsyncIterator[T]]) -> AsyncIterator[T]:
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
        """Nobody: a server is asked over its channel, which lives on the portal's loop."""
        return None

    async def work(self) -> WorkApi:
        """Sessions over streams of their own."""
        return StreamWork(self._address)

    async def close(self) -> None:
        """Ends the channel."""
        await self._jobs.close()

    def disown(self) -> None:
        """A channel is of no use to a child, and is never touched there."""
