"""Finds waiting jobs and bids for them.

Invariants:
- A look reads the returned jobs and the first non-empty bucket of each lane, so its cost does not depend on the number
  of waiting jobs.
- A bid is one transaction, which checks that the state that the look found has not changed. Several bids are in flight
  at a time, in the order of the postings.
- A bid without a reply is kept until it is known whether it succeeded: if it did, no other worker would run the job.
"""

import asyncio
import random
import time
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.core.lifecycle import QUEUED, RUNNING
from holdfast.errors import UnavailableError
from holdfast.ports import Assignment
from holdfast.topologies.zookeeper.backend.job_transactions import bucket_of
from holdfast.topologies.zookeeper.backend.kazoo_bridge import WatchEvent
from holdfast.topologies.zookeeper.backend.lanes import CLOSED
from holdfast.topologies.zookeeper.backend.node_changes import NodeChanges
from holdfast.topologies.zookeeper.backend.paths import BACK, NodeLane, Posting, lane_named, posting_named
from holdfast.topologies.zookeeper.backend.records import Record, VersionedRecord, kept_of
from holdfast.topologies.zookeeper.backend.transactions import Check, Delete, ReadNode, RefusedError, TransactionResult
from holdfast.topologies.zookeeper.backend.transition_log import log_changed
from holdfast.topologies.zookeeper.backend.worker_nodes import WorkerNodeKind

#: Maximum number of bids in flight.
_BIDS_MAX = 64
#: Postings are bid for without another look for this long; a more urgent job may have come since.
_FRESH_S = 0.2


class MadeBid(NamedTuple):
    """A bid that succeeded."""

    kept: VersionedRecord
    assignment: Assignment
    #: Time of sending, by this process's clock.
    sent_s: float


class _Bid(NamedTuple):
    kept: VersionedRecord
    record: Record
    done: "asyncio.Future[TransactionResult]"
    payload: "asyncio.Future[ReadNode | None] | None"
    sent_s: float


class Bidder:
    """Bids for one worker."""

    def __init__(self, node_changes: NodeChanges, kind: WorkerNodeKind, worker: str) -> None:
        self._node_changes = node_changes
        self._connection, self._paths = node_changes.connection, node_changes.paths
        self._kind = kind
        self._worker = worker
        #: Checked by every bid: no newer session of this worker exists. Replaced when this session starts.
        self.fence = Check(self._paths.held_by(worker))
        self._seen: list[tuple[NodeLane, Posting]] = []
        self._seen_s = 0.0
        self._turn = 0
        #: Bids without a reply.
        self._unsure: list[_Bid] = []
        #: Whether the record of a posting could not be read; no watch fires for it.
        self._is_unread = False

    @property
    def is_unsure(self) -> bool:
        """Whether a bid or the read of a record has had no reply since `make_sure`."""
        return bool(self._unsure) or self._is_unread

    def forget(self) -> None:
        """Discards the postings of the last look."""
        self._seen = []

    async def take(self, count: int, watch_event: WatchEvent | None = None) -> list[MadeBid]:
        """Takes up to `count` jobs; the event, if given, is set when there may be more."""
        if watch_event is not None or not self._seen or time.monotonic() - self._seen_s > _FRESH_S:
            self._seen_s = time.monotonic()
            self._seen = await self._look(watch_event)
        taken: list[MadeBid] = []
        while self._seen and len(taken) < count and not self._unsure:
            width = min(count - len(taken), _BIDS_MAX)
            tried, self._seen = self._seen[:width], self._seen[width:]
            won = await self._bid(tried)
            taken += won
            lost = len(tried) - len(won)
            if lost and len(self._seen) > 1:  # other workers bid for these postings: skip some
                skip = random.randrange(min(2 * lost, len(self._seen)))
                self._seen = self._seen[skip:] + self._seen[:skip]
        return taken

    async def make_sure(self) -> list[MadeBid]:
        """Returns the bids without a reply that succeeded; `UnavailableError` if that cannot be read yet."""
        taken: list[MadeBid] = []
        for bid in self._unsure:
            stored = await self._node_changes.read(bid.record.id)
            if stored is not None and stored.record.state == RUNNING and stored.record.worker == self._worker:
                stat = await self._connection.exists(self._paths.bid(bid.record.id))
                if (
                    stat is not None
                    and stat.owner == self._connection.session_id
                    and stat.created_id == stored.record.token
                ):
                    taken.append(_won(bid, stored, await self._assignment(stored.record)))
        self._unsure = []  # only after the loop: if a read fails, the next call checks all of them again
        self._is_unread = False
        return taken

    # -- looking

    async def _look(self, watch_event: WatchEvent | None) -> list[tuple[NodeLane, Posting]]:
        """Returns the postings that this worker takes, most urgent first; lanes of equal priority take turns."""
        names = await self._connection.children(self._paths.waiting, watch_event) or []
        lanes = [lane for lane in map(lane_named, sorted(names)) if self._kind.takes(lane)]
        self._turn += 1
        if lanes:
            shift = self._turn % len(lanes)
            lanes = lanes[shift:] + lanes[:shift]
        lanes.sort(key=lambda lane: -lane.priority)
        postings = await asyncio.gather(*(self._look_into(lane, watch_event) for lane in lanes))
        return [(lane, posting) for lane, found in zip(lanes, postings, strict=True) for posting in found]

    async def _look_into(self, lane: NodeLane, watch_event: WatchEvent | None) -> list[Posting]:
        """Returns the returned jobs of a lane, and the postings in its first non-empty bucket.

        The event is also set when a bucket is added, and when another worker takes a job from a bucket that was read:
        the next look then sees later buckets.
        """
        back = self._connection.children(self._paths.bucket(lane, BACK), watch_event)
        names = await self._connection.children(self._paths.lane(lane), watch_event) or []
        buckets = sorted(name for name in names if name != BACK)
        postings = sorted(posting_named(BACK, name) for name in await back or [])
        for name in buckets:
            path = self._paths.bucket(lane, name)
            waiting = await self._connection.children(path, watch_event)
            if waiting:
                return postings + sorted(posting_named(name, each) for each in waiting)
            if waiting is not None and name != buckets[-1]:  # closed and empty: no posting can be added
                self._connection.transact([Delete(path, CLOSED)])
        return postings

    # -- bidding

    async def _bid(self, tried: list[tuple[NodeLane, Posting]]) -> list[MadeBid]:
        """Bids, and returns the bids that succeeded; every bid that was sent is settled or kept in `_unsure`."""
        reads = [self._connection.get(self._paths.record(posting.job_id)) for _, posting in tried]
        bids: list[_Bid] = []
        for (lane, posting), read in zip(tried, reads, strict=True):
            try:
                node = await read
            except UnavailableError:
                self.forget()
                self._is_unread = True
                break
            stored = kept_of(node) if node is not None else None
            if stored is None or not _waits_there(stored.record, lane, posting):
                # Taking or ending a job deletes its posting, so this one is left over and can never be taken.
                self._connection.transact([Delete(self._paths.posting(lane, posting))])
                continue
            bids.append(self._send(stored, posting))
        return [taken for bid in bids if (taken := await self._settle(bid)) is not None]

    def _send(self, stored: VersionedRecord, posting: Posting) -> _Bid:
        record, steps = self._node_changes.transactions.take(stored, posting, self._worker, self._connection.now_ms())
        sent_s = time.monotonic()
        done = self._connection.transact([*steps, self.fence])
        payload = self._connection.get(self._paths.payload(record.id)) if record.payload_bytes else None
        return _Bid(stored, record, done, payload, sent_s)

    async def _settle(self, bid: _Bid) -> MadeBid | None:
        try:
            done = await bid.done
        except RefusedError:
            return None
        except UnavailableError:
            self._unsure.append(bid)
            return None
        stat = done.stats[1]
        assert stat is not None
        record = _with_token(bid.record, stat.changed_id)
        stored = VersionedRecord(record, stat.version)
        try:
            node = await bid.payload if bid.payload is not None else None
        except UnavailableError:
            self._unsure.append(bid)  # the bid succeeded; `make_sure` reads the payload again
            return None
        return _won(bid, stored, assignment_of(record, node.data if node else b""))

    async def _assignment(self, record: Record) -> Assignment:
        node = await self._connection.get(self._paths.payload(record.id)) if record.payload_bytes else None
        return assignment_of(record, node.data if node else b"")


def _won(bid: _Bid, stored: VersionedRecord, assignment: Assignment) -> MadeBid:
    log_changed(bid.kept.record, stored.record)
    return MadeBid(stored, assignment, bid.sent_s)


def assignment_of(record: Record, payload: bytes) -> Assignment:
    template, extra = record.template, record.extra
    return Assignment(
        token=record.token,
        job_id=record.id,
        type=template.type,
        payload=payload,
        attempt=record.failures + record.losses + 1,
        timeout_ms=template.timeout_ms,
        simulated=template.simulated,
        work_duration_ms=extra.work_duration_ms if extra else 0,
        payload_size_bytes=extra.payload_size_bytes if extra else 0,
        labels=dict(extra.labels) if extra else {},
        headers=dict(extra.headers) if extra else {},
        queue=template.queue,
        retries_left=template.max_attempts - record.failures - 1,
    )


def _waits_there(record: Record, lane: NodeLane, posting: Posting) -> bool:
    return record.state == QUEUED and record.lane == lane and record.bucket == bucket_of(posting)


def _with_token(record: Record, token: int) -> Record:
    return replace(record, token=token)
