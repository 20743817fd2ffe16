"""Lanes and their buckets: a job is posted into the open bucket of its lane.

Invariants:
- A posting is added only to a bucket that is open; the transaction checks that by the bucket's version. The process
  that fills a bucket closes it and opens the next one in one transaction, so no posting is added to a bucket once a
  later one exists, and buckets are in submit order. A lane always has an open bucket: only closed buckets are deleted,
  or the lane with all of its buckets.
- The remembered open bucket is a guess, which the transaction checks.
"""

import asyncio
import contextlib
from collections.abc import Awaitable
from weakref import WeakValueDictionary

from holdfast.errors import UnavailableError
from holdfast.topologies.zookeeper import ensemble_limits
from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection
from holdfast.topologies.zookeeper.backend.paths import BACK, NodeLane, bucket_name, bucket_number, sequence_of
from holdfast.topologies.zookeeper.backend.records import Record
from holdfast.topologies.zookeeper.backend.transactions import Check, Create, Put, RefusedError, Step

#: The version of a bucket's node while it is open, and once it is closed.
OPEN, CLOSED = 0, 1
#: Maximum number of remembered minute nodes; most of them are in the past.
_MINUTES_MAX = 1_000
#: Maximum number of lanes whose open bucket is remembered; with thousands of queues, few are used again.
_LANES_MAX = 10_000


class _OpenBucket:
    """The open bucket of a lane, and an estimate of its postings."""

    __slots__ = ("count", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.count = 0


class NodeLanes:
    """The lanes into which one process posts."""

    def __init__(self, connection: EnsembleConnection) -> None:
        self._connection = connection
        self._open: dict[NodeLane, _OpenBucket] = {}
        #: A lock exists while a task holds it or waits for it.
        self._locks: WeakValueDictionary[NodeLane, asyncio.Lock] = WeakValueDictionary()
        #: Minute nodes that are known to exist.
        self._minutes: set[str] = set()

    async def bucket(self, lane: NodeLane) -> int:
        """Returns the bucket number for the next posting of this lane, and counts that posting."""
        known = self._open.get(lane)
        if known is None or known.count >= ensemble_limits.BUCKET_JOBS:
            async with self._locks.setdefault(lane, asyncio.Lock()):
                known = self._open.get(lane)
                if known is None:
                    known = await self._find(lane)
                elif known.count >= ensemble_limits.BUCKET_JOBS:
                    known = await self._roll(lane, known)
        known.count += 1
        return known.number

    def is_full(self, lane: NodeLane) -> bool:
        """Whether the next posting may go into another bucket."""
        known = self._open.get(lane)
        return known is None or known.count >= ensemble_limits.BUCKET_JOBS

    def posted(self, lane: NodeLane, path: str) -> None:
        """Updates the estimate: the sequence number in the name of a new posting shows how full its bucket is."""
        known = self._open.get(lane)
        *_, bucket, name = path.split("/")
        if known is not None and bucket_number(bucket) == known.number:
            known.count = max(known.count, sequence_of(name) + 1)

    def forget(self, lane: NodeLane) -> None:
        """Forgets the open bucket of a lane, after a transaction has refused it."""
        self._open.pop(lane, None)

    def steps(self, record: Record) -> list[Step]:
        """Returns the steps that post a job into its bucket."""
        path = self._connection.paths.bucket(record.lane, bucket_name(record.bucket))
        return [Check(path, OPEN), Create(f"{path}/{record.id}-", sequential=True)]

    def steps_back(self, record: Record) -> list[Step]:
        """Returns the steps that post a job ahead of all jobs that were never taken, at its old place."""
        path = self._connection.paths.bucket(record.lane, BACK)
        first, second = record.place
        return [Create(f"{path}/{first:010d}.{second:010d}-{record.id}-", sequential=True)]

    async def ensure(self, lane: NodeLane) -> None:
        """Creates the lane if it does not exist."""
        path = self._connection.paths.lane(lane)
        first, back = Create(f"{path}/{bucket_name(0)}"), Create(f"{path}/{BACK}")
        await self._make([Create(path), back, first])

    async def ensure_minute(self, path: str) -> None:
        """Creates the minute node that is the parent of this path, if it does not exist."""
        parent = path.rpartition("/")[0]
        if parent not in self._minutes:
            await self._make([Create(parent)])
            if len(self._minutes) > _MINUTES_MAX:
                self._minutes.clear()
            self._minutes.add(parent)

    def forget_minute(self, path: str) -> None:
        """Forgets a minute node, which was deleted."""
        self._minutes.discard(path.rpartition("/")[0])

    async def _make(self, steps: list[Step]) -> None:
        """Creates nodes unless they exist; safe to repeat."""
        with contextlib.suppress(RefusedError):
            await self._connection.repeat(lambda: self._connection.transact(steps))

    async def _names(self, path: str) -> list[str] | None:
        def ask() -> Awaitable[list[str] | None]:
            self._connection.sync()
            return self._connection.children(path)

        return await self._connection.repeat(ask)

    async def _find(self, lane: NodeLane) -> _OpenBucket:
        """Returns the open bucket, which is the last one."""
        path = self._connection.paths.lane(lane)
        names = await self._names(path)
        if not names:
            await self.ensure(lane)
            names = await self._names(path) or [bucket_name(0)]
        if len(self._open) >= _LANES_MAX:
            self._open.clear()
        found = self._open[lane] = _OpenBucket(max(map(bucket_number, names)))
        return found

    async def _roll(self, lane: NodeLane, full: _OpenBucket) -> _OpenBucket:
        path = self._connection.paths.lane(lane)
        close = Put(f"{path}/{bucket_name(full.number)}", b"closed", OPEN)
        try:
            await self._connection.transact([close, Create(f"{path}/{bucket_name(full.number + 1)}")])
        except (RefusedError, UnavailableError):  # another process was first, or there was no reply
            return await self._find(lane)
        rolled = self._open[lane] = _OpenBucket(full.number + 1)
        return rolled
