"""The loop of a worker that bids while there is room, and stands in line when it finds nothing.

Invariants:
- One loop bids. Watches, room and drain only wake it; nothing blocks them, and there is never a second loop.
- When the loop has ended after `drain`, no bid is under way. None is in doubt either, unless the ensemble was away for
  longer than a call may take: such a bid ends with the session, and its job is recovered.
"""

import asyncio
from collections.abc import Callable

from holdfast import limits
from holdfast.errors import UnavailableError
from holdfast.observe.logs import get_logger
from holdfast.topologies.zookeeper.backend.bidder import Bidder, MadeBid
from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection
from holdfast.topologies.zookeeper.backend.kazoo_bridge import Bell
from holdfast.topologies.zookeeper.backend.waiting_line import ElectionLine

#: Even who is told nothing looks this often, in case the one before in the line is deaf.
_LOOK_S = 60.0
#: How long a drain tries to learn what became of bids that were not answered.
_DOUBT_S = limits.ZOOKEEPER_CALL_MS / 1_000


class Taking:
    """Takes for one session; what was taken is told to whoever has to know."""

    def __init__(
        self,
        connection: EnsembleConnection,
        bidder: Bidder,
        line: ElectionLine,
        *,
        tell: Callable[[list[MadeBid]], None],
    ) -> None:
        self._connection = connection
        self._bidder = bidder
        self._line = line
        self._tell = tell
        self._room = 0
        self._wake = Bell()
        #: One for all looks: the library keeps a watch until it rings, and equal ones once.
        self._bell = Bell()
        self._draining = asyncio.Event()
        #: Whether it stands in line and waits to be woken.
        self.is_waiting = False

    def want(self, count: int) -> None:
        """There is room for so many more."""
        self._room += count
        self._wake.set()

    def drain(self) -> None:
        """No more bids."""
        self._draining.set()
        self._wake.set()

    async def run(self) -> None:
        """Until it is drained and knows all that it has taken."""
        while not self._draining.is_set():
            try:
                self._deliver(await self._bidder.make_sure())
                if self._draining.is_set():
                    break
                if self._room > 0:
                    await self._bid_once()
                else:
                    await self._line.leave()
                    await self._awake(None)
            except UnavailableError:
                await self._back_or_draining()
        await self._make_sure_at_last()

    async def _back_or_draining(self) -> None:
        """Waits for the ensemble; whoever drains has nothing to ask it for."""
        waits = [asyncio.ensure_future(self._connection.back()), asyncio.ensure_future(self._draining.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if waits[0].done():
                waits[0].result()
        finally:
            for wait in waits:
                wait.cancel()

    async def _make_sure_at_last(self) -> None:
        """What became of bids in doubt, if the ensemble tells in time."""
        try:
            async with asyncio.timeout(_DOUBT_S):
                while True:
                    try:
                        self._deliver(await self._bidder.make_sure())
                    except UnavailableError:
                        await self._connection.back()
                    else:
                        return
        except TimeoutError:
            get_logger().info("bids_in_doubt", message="the ensemble did not answer; what was won is recovered")

    async def leave(self) -> None:
        """Steps out of the line; `UnavailableError` if it cannot, and then it ends with the session."""
        await self._line.leave()

    async def _bid_once(self) -> None:
        """Takes what is there; who finds nothing stands in line, and is first before it relies on being woken."""
        if not self._line.is_in:
            if not self._deliver(await self._bidder.take(self._room)) and not self._bidder.is_unsure:
                await self._line.is_first(self._bell)
            return
        bell = self._bell
        bell.clear()
        if await self._line.is_first(bell) and self._deliver(await self._bidder.take(self._room, bell)):
            await self._line.leave()  # the next one is first, and sees what is left
            return
        if self._bidder.is_unsure:
            return
        if not await self._awake(bell):
            self._deliver(await self._bidder.take(self._room))

    async def _awake(self, bell: Bell | None) -> bool:
        """Waits for the bell, or for whatever the holder says; False if nothing came for long."""
        self.is_waiting = bell is not None
        waits = [asyncio.ensure_future(each.wait()) for each in (self._wake, bell) if each is not None]
        try:
            done, _ = await asyncio.wait(waits, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.is_waiting = False
            for wait in waits:
                wait.cancel()
        self._wake.clear()
        return bool(done)

    def _deliver(self, taken: list[MadeBid]) -> bool:
        self._room = max(0, self._room - len(taken))
        if taken:
            self._tell(taken)
        return bool(taken)
