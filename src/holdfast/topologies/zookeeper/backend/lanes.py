"""Where a job is posted: the open bucket of its lane.

Invariants:
- A posting goes into a bucket that is open (its version says so), checked in the transaction that makes it. Whoever
  fills a bucket closes it and opens the next in one transaction: so nothing ever comes into a bucket when there is a
  later one, and buckets are in submit order. A lane always has an open one: only closed ones are taken away, or all
  of them with their lane.
- What is remembered here is a guess that a transaction checks.
"""

import asyncio
import contextlib
from collections.abc import Awaitable
from weakref import WeakValueDictionary

from holdfast import limits
from holdfast.errors import UnavailableError
from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection
from holdfast.topologies.zookeeper.backend.paths import BACK, NodeLane, bucket_name, bucket_number, sequence_of
from holdfast.topologies.zookeeper.backend.records import Record
from holdfast.topologies.zookeeper.backend.transactions import Check, Create, Put, RefusedError, Step

#: The versions of a bucket.
OPEN, CLOSED = 0, 1
#: Nodes of minutes that are remembered; most are past.
_MINUTES_MAX = 1_000
#: Lanes whose open bucket is remembered; whoever makes queues by the thousand does not use most of them again.
_LANES_MAX = 10_000


class _Open:
    """The open bucket of a lane, and how many postings it is believed to have had."""

    __slots__ = ("count", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.count = 0


class NodeLanes:
    """The lanes that one process posts into."""

    def __init__(self, connection: EnsembleConnection) -> None:
        self._connection = connection
        self._open: dict[NodeLane, _Open] = {}
        #: Each as long as somebody holds it or waits for it.
        self._locks: WeakValueDictionary[NodeLane, asyncio.Lock] = WeakValueDictionary()
        #: Nodes of minutes that are known to be there.
        self._minutes: set[str] = set()

    async def bucket(self, lane: NodeLane) -> int:
        """The number of the bucket for the next posting of this lane, which is counted."""
        known = self._open.get(lane)
        if known is None or known.count >= limits.ZOOKEEPER_BUCKET_JOBS:
            async with self._locks.setdefault(lane, asyncio.Lock()):
                known = self._open.get(lane)
                if known is None:
                    known = await self._find(lane)
                elif known.count >= limits.ZOOKEEPER_BUCKET_JOBS:
                    known = await self._roll(lane, known)
        known.count += 1
        return known.number

    def is_full(self, lane: NodeLane) -> bool:
        """Whether the next posting goes into another bucket, as far as is known."""
        known = self._open.get(lane)
        return known is None or known.count >= limits.ZOOKEEPER_BUCKET_JOBS

    def posted(self, lane: NodeLane, path: str) -> None:
        """A posting was made: its name says how full its bucket is."""
        known = self._open.get(lane)
        *_, bucket, name = path.split("/")
        if known is not None and bucket_number(bucket) == known.number:
            known.count = max(known.count, sequence_of(name) + 1)

    def forget(self, lane: NodeLane) -> None:
        """What was remembered was wrong."""
        self._open.pop(lane, None)

    def steps(self, record: Record) -> list[Step]:
        """What posts a job into its bucket."""
        path = self._connection.paths.bucket(record.lane, bucket_name(record.bucket))
        return [Check(path, OPEN), Create(f"{path}/{record.id}-", sequential=True)]

    def steps_back(self, record: Record) -> list[Step]:
        """What posts a job before all that have never been taken, where it was among those that have."""
        path = self._connection.paths.bucket(record.lane, BACK)
        first, second = record.place
        return [Create(f"{path}/{first:010d}.{second:010d}-{record.id}-", sequential=True)]

    async def ensure(self, lane: NodeLane) -> None:
        """Makes the lane, if it is not there."""
        path = self._connection.paths.lane(lane)
        first, back = Create(f"{path}/{bucket_name(0)}"), Create(f"{path}/{BACK}")
        await self._make([Create(path), back, first])

    async def ensure_minute(self, path: str) -> None:
        """Makes the node of a minute, which is the parent of this path, if it is not there."""
        parent = path.rpartition("/")[0]
        if parent not in self._minutes:
            await self._make([Create(parent)])
            if len(self._minutes) > _MINUTES_MAX:
                self._minutes.clear()
            self._minutes.add(parent)

    def forget_minute(self, path: str) -> None:
        """Somebody has tidied it up."""
        self._minutes.discard(path.rpartition("/")[0])

    async def _make(self, steps: list[Step]) -> None:
        """What is the same whoever makes it, and how often."""
        with contextlib.suppress(RefusedError):
            await self._connection.repeat(lambda: self._connection.transact(steps))

    async def _names(self, path: str) -> list[str] | None:
        def ask() -> Awaitable[list[str] | None]:
            self._connection.sync()
            return self._connection.children(path)

        return await self._connection.repeat(ask)

    async def _find(self, lane: NodeLane) -> _Open:
        """The last bucket is the open one."""
        path = self._connection.paths.lane(lane)
        names = await self._names(path)
        if not names:
            await self.ensure(lane)
            names = await self._names(path) or [bucket_name(0)]
        if len(self._open) >= _LANES_MAX:
            self._open.clear()
        found = self._open[lane] = _Open(max(map(bucket_number, names)))
        return found

    async def _roll(self, lane: NodeLane, full: _Open) -> _Open:
        path = self._connection.paths.lane(lane)
        close = Put(f"{path}/{bucket_name(full.number)}", b"closed", OPEN)
        try:
            await self._connection.transact([close, Create(f"{path}/{bucket_name(full.number + 1)}")])
        except (RefusedError, UnavailableError):  # somebody else has, or this was not answered
            return await self._find(lane)
        rolled = self._open[lane] = _Open(full.number + 1)
        return rolled
