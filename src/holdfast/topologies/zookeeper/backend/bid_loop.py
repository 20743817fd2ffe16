"""The bidding loop of a worker: it bids while it wants jobs, and waits in line when it finds none.

Invariants:
- One loop bids. Watches, `want` and `drain` only wake it, and never start a second loop.
- When the loop has ended after `drain`, no bid is in flight. No bid is in doubt either, unless the ensemble was
  unreachable for longer than the time limit of a call: such a bid ends with the session, and its job is recovered.
"""

import asyncio
from collections.abc import Callable

from holdfast.errors import UnavailableError
from holdfast.observe.logs import get_logger
from holdfast.topologies.zookeeper import ensemble_limits
from holdfast.topologies.zookeeper.backend.bidder import Bidder, MadeBid
from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection
from holdfast.topologies.zookeeper.backend.kazoo_bridge import WatchEvent
from holdfast.topologies.zookeeper.backend.leader_election import LeaderElection

#: Look for jobs at least this often, because the worker ahead in line may not respond to its events.
_LOOK_S = 60.0
#: A drain tries for this long to resolve bids without a reply.
_DOUBT_S = ensemble_limits.CALL_MS / 1_000


class BidLoop:
    """Takes jobs for one session, and passes the bids that succeeded to `tell`."""

    def __init__(
        self,
        connection: EnsembleConnection,
        bidder: Bidder,
        line: LeaderElection,
        *,
        tell: Callable[[list[MadeBid]], None],
    ) -> None:
        self._connection = connection
        self._bidder = bidder
        self._line = line
        self._tell = tell
        self._room = 0
        self._wake = WatchEvent()
        #: One event for all looks: kazoo keeps a watch until it fires, and keeps equal watches once.
        self._watch_event = WatchEvent()
        self._draining = asyncio.Event()
        #: Whether the loop is in line and waits for an event.
        self.is_waiting = False

    def want(self, count: int) -> None:
        """Adds to the number of jobs to take."""
        self._room += count
        self._wake.set()

    def drain(self) -> None:
        """Stops bidding."""
        self._draining.set()
        self._wake.set()

    async def run(self) -> None:
        """Bids until drained, then resolves the bids without a reply."""
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
        """Waits until the ensemble answers again, or until a drain."""
        waits = [asyncio.ensure_future(self._connection.back()), asyncio.ensure_future(self._draining.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if waits[0].done():
                waits[0].result()
        finally:
            for wait in waits:
                wait.cancel()

    async def _make_sure_at_last(self) -> None:
        """Resolves the bids without a reply, if the ensemble answers in time."""
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
            get_logger().info(
                "bids_in_doubt", message="the ensemble did not answer; the jobs of won bids will be recovered"
            )

    async def leave(self) -> None:
        """Leaves the line; after `UnavailableError` the place in it ends with the session."""
        await self._line.leave()

    async def _bid_once(self) -> None:
        """Takes waiting jobs, or joins the line if there are none; only the first in line watches the lanes."""
        if not self._line.is_in:
            if not self._deliver(await self._bidder.take(self._room)) and not self._bidder.is_unsure:
                await self._line.is_first(self._watch_event)
            return
        watch_event = self._watch_event
        watch_event.clear()
        if await self._line.is_first(watch_event) and self._deliver(await self._bidder.take(self._room, watch_event)):
            await self._line.leave()  # the next worker becomes first, and sees the remaining jobs
            return
        if self._bidder.is_unsure:
            return
        if not await self._awake(watch_event):
            self._deliver(await self._bidder.take(self._room))

    async def _awake(self, watch_event: WatchEvent | None) -> bool:
        """Waits for the watches, `want` or `drain`; returns False if none of them came within `_LOOK_S`."""
        self.is_waiting = watch_event is not None
        waits = [asyncio.ensure_future(each.wait()) for each in (self._wake, watch_event) if each is not None]
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
