"""`holdfast://host:port,host:port`: a link to several nodes or to a cluster, over the wire."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from holdfast.client.access import NO_CREDENTIALS, Access
from holdfast.client.discovered_work import DiscoveredWork
from holdfast.client.discovery import Places, discover
from holdfast.client.link import BlockingCalls, ClientLink, Link, LinkPorts
from holdfast.client.reconnect_policy import patiently
from holdfast.client.remote_link import RemoteLink
from holdfast.client.retry_policy import RetryPolicy
from holdfast.client.routed_jobs import UnnamedJobs
from holdfast.errors import HoldfastError
from holdfast.observe.logs import get_logger
from holdfast.ports import WorkApi

T = TypeVar("T")


def tell(address: str, error: HoldfastError | None) -> None:
    """Logs that a worker has lost a node, or has it back."""
    if error is None:
        get_logger().info("node_back", node=address)
    else:
        get_logger().warning("node_away", node=address, message=f"{error.message}; continuing with the other nodes")


class NodesLink(ClientLink):
    """One connection to each place that owns keys."""

    def __init__(self, jobs: UnnamedJobs, work: WorkApi, *, is_replaced: bool = False) -> None:
        super().__init__(jobs, is_replaced=is_replaced)
        self._work = work

    async def work(self) -> WorkApi:
        """Returns an API whose sessions connect to all places."""
        return self._work


class DiscoveredLink:
    """A link whose first call finds out what is at the addresses: the nodes of a monolith, or a cluster."""

    is_private = False

    def __init__(self, addresses: Sequence[str], access: Access = NO_CREDENTIALS) -> None:
        self._addresses = addresses
        self._access = access
        self._found: Link | None = None
        self._finding = asyncio.Lock()

    async def call(
        self, use: Callable[[LinkPorts], Awaitable[T]], *, is_repeatable: bool = True, is_waiting: bool = False
    ) -> T:
        """Returns the response, as the link to what was found does."""
        found = self._found or await self._find(is_waiting=is_waiting)
        return await found.call(use, is_repeatable=is_repeatable, is_waiting=is_waiting)

    async def stream(self, use: Callable[[LinkPorts], AsyncIterator[T]]) -> AsyncIterator[T]:
        """Yields the items of a stream; it restarts after a lost connection."""
        found = self._found or await self._find(is_waiting=True)
        async for item in found.stream(use):
            yield item

    def blocking_calls(self) -> BlockingCalls | None:
        """Returns the API for calls on the caller's own thread, if it is known by now that there is one."""
        return self._found.blocking_calls() if self._found is not None else None

    async def work(self) -> WorkApi:
        """Returns an API whose sessions connect to all places."""
        return DiscoveredWork(self._addresses, tell, self._access)

    async def close(self) -> None:
        """Closes all connections."""
        if self._found is not None:
            await self._found.close()

    def disown(self) -> None:
        """Does nothing: a forked child never touches connections of its parent."""

    async def _find(self, *, is_waiting: bool) -> Link:
        async with self._finding:
            if self._found is None:
                look = partial(discover, self._addresses, self._access)
                looked = patiently(look) if is_waiting else RetryPolicy().call(look, is_repeatable=True)
                self._found = self._link_to(await looked)
            return self._found

    def _link_to(self, places: Places) -> Link:
        work = DiscoveredWork(self._addresses, tell, self._access)
        if len(places.names) == 1:
            return RemoteLink(places.endpoint(places.names[0], self._access), work, is_replaced=places.are_replaced)
        jobs = UnnamedJobs(places.names, self._access, endpoint=places.endpoint)
        return NodesLink(jobs, work, is_replaced=places.are_replaced)
