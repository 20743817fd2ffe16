"""`zk://host:port,host:port/path`: a link to an ensemble, where clients and workers meet without a server of ours."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from holdfast import limits
from holdfast.client.link import LinkPorts, Near
from holdfast.client.reconnect_policy import Patience, patiently
from holdfast.errors import HoldfastError
from holdfast.ports import WorkApi
from holdfast.topologies.zookeeper.client_api import BiddingJobs, bid_work
from holdfast.topologies.zookeeper.ensemble_url import Ensemble

T = TypeVar("T")

#: A call waits for the ensemble at most twice in a row before it fails: what lasted longer was answered at first.
_ANSWERED_S = 3 * limits.ZOOKEEPER_CALL_MS / 1_000


class Bidding:
    """One session for everything that is asked, and one more for each worker."""

    is_private = False

    def __init__(self, ensemble: Ensemble) -> None:
        self._ensemble = ensemble
        self._jobs = BiddingJobs(ensemble)
        self._ports = LinkPorts(self._jobs, self._jobs, self._jobs, self._jobs.schedules, self._jobs)

    async def call(
        self, use: Callable[[LinkPorts], Awaitable[T]], *, is_repeatable: bool = True, is_waiting: bool = False
    ) -> T:
        """The answer; what is repeatable is asked again while the ensemble chooses a leader or a session is renewed."""
        if is_repeatable and self._jobs.is_open:
            return await patiently(lambda: use(self._ports), Patience(_ANSWERED_S))
        return await use(self._ports)

    async def stream(self, use: Callable[[LinkPorts], AsyncIterator[T]]) -> AsyncIterator[T]:
        """What a stream yields; after a loss it begins anew."""
        patience = Patience(_ANSWERED_S)
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
        """Nobody: the session lives on the link's own loop."""
        return None

    async def work(self) -> WorkApi:
        """Sessions that bid, each on a connection of its own."""
        return bid_work(self._ensemble)

    async def close(self) -> None:
        """Ends the session."""
        await self._jobs.close()

    def disown(self) -> None:
        """A session is of no use to a child, and is never touched there."""
