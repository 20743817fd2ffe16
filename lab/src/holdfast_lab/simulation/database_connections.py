"""The connections between nodes and the simulated database: the ports of the cluster, with all their faults.

A call blocks its thread until the answer arrives, or the time limit of the call is over. Requests and answers may be
lost, a request may arrive long after its caller has given up, and a connection may be cut at any time.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from holdfast.journal.port import SegmentInfo
from holdfast.topologies.cluster.ports import (
    Append,
    ClusterView,
    DatabaseLostError,
    FrameKey,
    NodeRecord,
    StoredFrame,
)
from holdfast_lab.simulation.database_statements import DatabaseStatements, Run
from holdfast_lab.simulation.process_thread import ProcessThread
from holdfast_lab.simulation.scheduler import Call
from holdfast_lab.simulation.simulated_database import SimulatedDatabase, Transaction

T = TypeVar("T")
_TRANSIT_US = (20, 400)
_CONNECT_US = (200, 2_000)
_PERCENT = 100


@dataclass(slots=True, kw_only=True)
class LinkFaults:
    """The faults of the calls of one node, as percentages, and the time until which the node is cut off."""

    lost_request: float = 0
    lost_answer: float = 0
    late_request: float = 0
    late_answer: float = 0
    cut: float = 0
    blocked_until_us: float = 0


class _DatabaseCall:
    """One call: the first of answer, loss and time limit decides it."""

    __slots__ = ("answer", "is_lost", "resume", "transaction")

    def __init__(self, resume: Call) -> None:
        self.resume: Call | None = resume
        self.answer: object = None
        self.is_lost = False
        self.transaction: Transaction | None = None

    def end(self, answer: object, *, is_lost: bool) -> None:
        """Ends the call, unless it has ended."""
        if self.resume is not None:
            self.answer, self.is_lost = answer, is_lost
            resume, self.resume = self.resume, None
            resume()


class DatabaseLink:
    """One connection of a node; it is opened by the next call after it was lost."""

    def __init__(
        self,
        database: SimulatedDatabase,
        thread: ProcessThread,
        rng: random.Random,
        faults: LinkFaults,
        limit_ms: int,
    ) -> None:
        self.database = database
        self._thread = thread
        self._rng = rng
        self.faults = faults
        self._limit_us = limit_ms * 1_000
        self._is_open = False
        self._attempt: _DatabaseCall | None = None
        database.on_crash.append(self.cut)

    def cut(self) -> None:
        """Breaks the connection; a call that is under way is lost, and its transaction may end in either way."""
        self._is_open = False
        attempt = self._attempt
        if attempt is not None:
            if attempt.transaction is not None and self._rng.random() < 0.5:  # noqa: PLR2004 - a coin
                self.database.abort(attempt.transaction)
            self.database.clock.after(self._transit_us(), "link cut", lambda: attempt.end(None, is_lost=True))

    def close(self) -> None:
        """Closes the connection."""
        self._is_open = False

    def call(self, run: Run) -> object:
        """Runs a transaction, and returns its answer; raises `DatabaseLostError` if none arrives."""
        attempts = list[_DatabaseCall]()

        def start(resume: Call) -> None:
            attempts.append(_DatabaseCall(resume))
            self._attempt = attempts[0]
            self._send(attempts[0], run)

        self._thread.block(start)
        attempt, self._attempt = attempts[0], None
        if attempt.is_lost:
            self._is_open = False
            raise DatabaseLostError("the connection to the database was lost")
        if isinstance(attempt.answer, Exception):
            if isinstance(attempt.answer, DatabaseLostError):
                self._is_open = False
            raise attempt.answer
        return attempt.answer

    def _send(self, attempt: _DatabaseCall, run: Run) -> None:
        clock, faults = self.database.clock, self.faults
        clock.after(self._limit_us, "link limit", lambda: attempt.end(None, is_lost=True))
        delay_us = self._transit_us() + (0 if self._is_open else self._rng.randint(*_CONNECT_US))
        self._is_open = True
        if self._hits("late_request"):
            delay_us += self._rng.randint(0, 3 * self._limit_us)
        if self._hits("cut"):
            clock.after(self._rng.randint(0, 3_000), "link cut", lambda: self._cut_if(attempt))
        if clock.now_us < faults.blocked_until_us or self._hits("lost_request"):
            return
        clock.after(delay_us, "request", lambda: self._arrive(attempt, run))

    def _cut_if(self, attempt: _DatabaseCall) -> None:
        if self._attempt is attempt:
            self.cut()

    def _arrive(self, attempt: _DatabaseCall, run: Run) -> None:
        """Runs the transaction, also if its caller has given up."""
        if not self.database.is_up:
            self.database.clock.after(self._transit_us(), "refused", lambda: attempt.end(None, is_lost=True))
            return
        transaction = self.database.begin(run, lambda answer: self._answer(attempt, answer))
        attempt.transaction = None if transaction.is_over else transaction

    def _answer(self, attempt: _DatabaseCall, answer: object) -> None:
        clock = self.database.clock
        if clock.now_us < self.faults.blocked_until_us or self._hits("lost_answer"):
            return
        delay_us = self._transit_us() + (self._rng.randint(0, self._limit_us) if self._hits("late_answer") else 0)
        clock.after(delay_us, "answer", lambda: attempt.end(answer, is_lost=False))

    def _hits(self, fault: str) -> bool:
        percent: float = getattr(self.faults, fault)
        if not percent or self._rng.random() * _PERCENT >= percent:
            return False
        self.database.fired(fault.replace("_", " "))
        return True

    def _transit_us(self) -> int:
        return self._rng.randint(*_TRANSIT_US)


class SimulatedFrameWriter:
    """The `ShardWriter` of one shard."""

    def __init__(self, link: DatabaseLink, shard: int) -> None:
        self._link = link
        self._shard = shard
        self._statements = DatabaseStatements(link.database)

    def append(self, frame: StoredFrame, inbox: Sequence[int] = ()) -> Append:
        """Appends a frame."""
        return cast("Append", self._link.call(self._statements.append(self._shard, frame, tuple(inbox))))

    def find(self, first_position: int) -> FrameKey | None:
        """Reads a frame back."""
        return cast("FrameKey | None", self._link.call(self._statements.find(self._shard, first_position)))

    def confirm(self, epoch: int) -> Append:
        """Confirms earlier commits."""
        return cast("Append", self._link.call(self._statements.confirm(self._shard, epoch)))

    def open_segment(self, first_position: int, epoch: int, created_ms: int) -> Append:
        """Begins a segment."""
        run = self._statements.open_segment(self._shard, first_position, epoch, created_ms)
        return cast("Append", self._link.call(run))

    def segments(self) -> list[SegmentInfo]:
        """Reads the segments."""
        return cast("list[SegmentInfo]", self._link.call(self._statements.segments(self._shard)))

    def remove_segments(self, names: Sequence[str], epoch: int) -> Append:
        """Removes segments."""
        return cast("Append", self._link.call(self._statements.remove_segments(self._shard, tuple(names), epoch)))

    def close(self) -> None:
        """Closes the connection."""
        self._link.close()


class SimulatedFrameReader:
    """The `ShardReader` of one shard."""

    def __init__(self, link: DatabaseLink, shard: int) -> None:
        self._link = link
        self._shard = shard
        self._statements = DatabaseStatements(link.database)

    def frames(self, after: int, bytes_max: int) -> list[StoredFrame]:
        """Reads frames."""
        return cast("list[StoredFrame]", self._link.call(self._statements.frames(self._shard, after, bytes_max)))

    def first_position(self) -> int:
        """Reads the lowest position."""
        return cast("int", self._link.call(self._statements.first_position(self._shard)))

    def end_position(self) -> int:
        """Reads the last position."""
        return cast("int", self._link.call(self._statements.end_position(self._shard)))

    def close(self) -> None:
        """Closes the connection."""
        self._link.close()


class SimulatedRegistry:
    """The `Registry`."""

    def __init__(self, link: DatabaseLink) -> None:
        self._link = link
        self._statements = DatabaseStatements(link.database)

    def beat(self, node: NodeRecord, leads: Mapping[int, int], lease_ms: int) -> ClusterView:
        """Renews an entry and its leases."""
        return cast("ClusterView", self._link.call(self._statements.beat(node, dict(leads), lease_ms)))

    def take(self, shard: int, seen_epoch: int, node: NodeRecord, lease_ms: int) -> int | None:
        """Takes a shard."""
        return cast("int | None", self._link.call(self._statements.take(shard, seen_epoch, node, lease_ms)))

    def hand_over(self, shard: int, epoch: int, successor: str) -> bool:
        """Ends a lease."""
        return cast("bool", self._link.call(self._statements.hand_over(shard, epoch, successor)))

    def leave(self, node: NodeRecord) -> None:
        """Removes an entry."""
        self._link.call(self._statements.leave(node))

    def close(self) -> None:
        """Closes the connection."""
        self._link.close()


def run_blocking(database: SimulatedDatabase, thread: ProcessThread, call: Callable[[], T]) -> T:
    """Steps the simulation until blocking code has ended; returns its result, or raises its error."""
    results, errors = list[T](), list[BaseException]()

    def work() -> int:
        results.append(call())
        return 0

    def done(result: int | BaseException) -> None:
        errors.append(result) if isinstance(result, BaseException) else errors.clear()
        finished.append(True)

    finished = list[bool]()
    thread.run(work, done, is_lone=False)
    while not finished and database.clock.step():
        pass
    if errors:
        raise errors[0]
    return results[0]
