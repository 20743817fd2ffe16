"""`holdfast://host:port,host:port`: a link to several nodes, over gRPC."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from holdfast.client.access import ANYBODY, Access
from holdfast.client.link import LinkPorts, Near
from holdfast.client.reconnect_policy import Patience, patiently
from holdfast.client.routed import UnnamedJobs
from holdfast.client.routed_work import RoutedWork
from holdfast.errors import HoldfastError
from holdfast.observe.logs import get_logger
from holdfast.ports import WorkApi

T = TypeVar("T")


def tell(address: str, error: HoldfastError | None) -> None:
    """A worker goes on without a node, or with it again."""
    if error is None:
        get_logger().info("node_back", node=address)
    else:
        get_logger().warning("node_away", node=address, message=f"{error.message}; going on with the others")


class NodesLink:
    """One connection to each node; calls are repeated by the client's own profile."""

    is_private = False

    def __init__(self, addresses: Sequence[str], access: Access = ANYBODY) -> None:
        """In their fixed order."""
        self._addresses = addresses
        self._access = access
        self._jobs = UnnamedJobs(addresses, access)
        self._ports = LinkPorts(self._jobs, self._jobs, self._jobs, self._jobs.schedules, self._jobs)

    async def call(
        self, use: Callable[[LinkPorts], Awaitable[T]], *, is_repeatable: bool = True, is_waiting: bool = False
    ) -> T:
        """The answer; only who waits for something anyway waits for a node that is being replaced."""
        if is_waiting and is_repeatable:
            return await patiently(lambda: use(self._ports))
        return await use(self._ports)

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
        """Nobody: which node is asked is decided on the link's own loop."""
        return None

    async def work(self) -> WorkApi:
        """Sessions with all nodes."""
        return RoutedWork(self._addresses, tell, self._access)

    async def close(self) -> None:
        """Ends all connections."""
        await self._jobs.close()

    def disown(self) -> None:
        """Channels are of no use to a child, and are never touched there."""
