"""`zk://host:port,host:port/path`: a link to an ensemble, used by clients and workers without a server of ours."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from holdfast.client.link import BlockingCalls, LinkPorts
from holdfast.client.reconnect_policy import ReconnectPolicy, patiently
from holdfast.errors import HoldfastError
from holdfast.ports import WorkApi
from holdfast.topologies.zookeeper import ensemble_limits
from holdfast.topologies.zookeeper.client_api import bid_work, open_client
from holdfast.topologies.zookeeper.ensemble_url import Ensemble

if TYPE_CHECKING:
    from holdfast.topologies.zookeeper.backend.ensemble_client import EnsembleClient

T = TypeVar("T")

#: A call waits for the ensemble at most twice before it fails, so one that lasted longer had a reply at first.
_ANSWERED_S = 3 * ensemble_limits.CALL_MS / 1_000


class EnsembleLink:
    """One session for all calls, and one more for each worker.

    The session is opened by the first call, and all calls that come meanwhile wait for the same opening.
    """

    is_private = False

    def __init__(self, ensemble: Ensemble) -> None:
        self._ensemble = ensemble
        self._opening: asyncio.Task[EnsembleClient] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the ensemble has answered."""
        opening = self._opening
        return opening is not None and opening.done() and not opening.cancelled() and opening.exception() is None

    async def _ports(self) -> LinkPorts:
        if self._opening is None or (self._opening.done() and not self.is_open):
            self._opening = asyncio.create_task(open_client(self._ensemble))
        # A caller that gives up waiting does not end the opening for the others.
        client = await asyncio.shield(self._opening)
        return LinkPorts(client, client, client, client.schedules, client)

    async def call(
        self, use: Callable[[LinkPorts], Awaitable[T]], *, is_repeatable: bool = True, is_waiting: bool = False
    ) -> T:
        """Returns the response; repeats a repeatable call while the ensemble elects a leader or renews the session."""

        async def once() -> T:
            return await use(await self._ports())

        return await patiently(once, ReconnectPolicy(_ANSWERED_S)) if is_repeatable and self.is_open else await once()

    async def stream(self, use: Callable[[LinkPorts], AsyncIterator[T]]) -> AsyncIterator[T]:
        """Yields the items of a stream, which restarts after a lost connection."""
        reconnect_policy = ReconnectPolicy(_ANSWERED_S)
        while True:
            reconnect_policy.begin()
            try:
                async for item in use(await self._ports()):
                    yield item
            except HoldfastError as error:
                await reconnect_policy.bear(error)
            else:
                return

    def blocking_calls(self) -> BlockingCalls | None:
        """Returns None: the session belongs to the link's own loop."""
        return None

    async def work(self) -> WorkApi:
        """Returns a `WorkApi` whose sessions bid, each on a connection of its own."""
        return bid_work(self._ensemble)

    async def close(self) -> None:
        """Ends the session, or the attempt to open one."""
        opening, self._opening = self._opening, None
        if opening is None:
            return
        opening.cancel()
        await asyncio.wait([opening])
        if not opening.cancelled() and opening.exception() is None:
            await opening.result().close()

    def disown(self) -> None:
        """Does nothing: a forked child never touches the session of its parent."""
