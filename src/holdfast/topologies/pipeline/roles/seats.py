"""The state of a coordinator: the workers and their queue processes, without clocks and I/O.

Invariants: a worker has one seat, that of the session with the last request; an earlier session that learns this is
over. Draining workers have no queue processes. Every change that a worker must know of changes the version of its seat,
and wakes its waiting requests.
"""

import asyncio
from collections.abc import Collection, Iterable
from itertools import chain, zip_longest
from zlib import crc32

import msgspec

from holdfast.topologies.pipeline.backend.store import QueueAssignment, WorkerKind
from holdfast.topologies.pipeline.roles.assignment import assign


class QueueList(msgspec.Struct, frozen=True, kw_only=True):
    """The queue processes, `host:port` each, and the minimum number of them for a worker."""

    normal: tuple[str, ...]
    high: tuple[str, ...] = ()
    breadth: int = 4

    def mixed(self) -> list[str]:
        """Returns all queue processes with the kinds alternating, so that most workers get some of each."""
        pairs = zip_longest(self.high, self.normal)
        return list(dict.fromkeys(queue for queue in chain.from_iterable(pairs) if queue is not None))


class Seat:
    """One worker."""

    def __init__(self, worker: str, session: str, kind: WorkerKind, slots: int) -> None:
        self.worker = worker
        self.session = session
        self.kind = kind
        self.slots = slots
        self.queues: tuple[str, ...] = ()
        #: The number of running jobs in its last heartbeat.
        self.running = 0
        self.heard_s = 0.0
        #: The worker has reported that it drains.
        self.is_draining = False
        #: An operator has requested that it drains.
        self.is_drain_asked = False
        self.changed = asyncio.Event()

    @property
    def version(self) -> int:
        """A checksum of the queue processes and the drain request, equal in every coordinator; never 0."""
        return crc32("\n".join((*self.queues, str(self.is_drain_asked))).encode()) or 1

    def place(self, now_s: float) -> QueueAssignment:
        """Returns the place to save."""
        is_draining = self.is_draining or self.is_drain_asked
        heard_ms_ago = max(0, round((now_s - self.heard_s) * 1_000))
        return QueueAssignment(self.worker, self.session, self.kind, self.slots, self.queues, heard_ms_ago, is_draining)

    def wake(self) -> None:
        """Wakes the requests that wait for a change of this seat."""
        self.changed.set()
        self.changed = asyncio.Event()


class Seats:
    """All workers. Times are those of a monotonic clock, in seconds."""

    def __init__(self, queues: QueueList) -> None:
        self._queues = queues
        self._order = queues.mixed()
        self._seats: dict[str, Seat] = {}
        #: Workers whose place has changed since it was last saved, and workers that have left.
        self.changed: set[str] = set()
        self.gone: set[str] = set()

    def __len__(self) -> int:
        return len(self._seats)

    def get(self, worker: str) -> Seat | None:
        """Returns the worker's seat, if it has one."""
        return self._seats.get(worker)

    def has(self, worker: str, session: str) -> bool:
        """Whether this session of the worker has the seat."""
        seat = self._seats.get(worker)
        return seat is not None and seat.session == session

    def all(self) -> list[Seat]:
        """Returns all seats, by worker."""
        return [self._seats[worker] for worker in sorted(self._seats)]

    def sit(self, seat: Seat) -> Seat:
        """Adds a worker, or replaces its session; a known worker keeps its queue processes as far as possible."""
        before = self._seats.get(seat.worker)
        if before is not None:
            seat.queues = before.queues
            before.wake()
        self._seats[seat.worker] = seat
        self.gone.discard(seat.worker)
        self.changed.add(seat.worker)
        self.share()
        return seat

    def restore(self, places: Iterable[QueueAssignment], heard_s: float) -> None:
        """Adds the workers of an earlier coordinator, except those that are known or have left."""
        for place in places:
            if place.worker not in self._seats and place.worker not in self.gone:
                seat = self._seats[place.worker] = Seat(place.worker, place.session, place.kind, place.slots)
                seat.queues, seat.heard_s = place.queues, heard_s
                seat.is_drain_asked = place.is_draining
        self.share()

    def leave(self, workers: Collection[str]) -> None:
        """Removes workers."""
        for worker in workers:
            seat = self._seats.pop(worker, None)
            if seat is not None:
                seat.wake()
                self.changed.discard(worker)
                self.gone.add(worker)
        self.share()

    def ask_to_drain(self, worker: str, session: str) -> bool:
        """Marks a worker as draining; returns whether that is new. A session after the request is not affected."""
        seat = self._seats.get(worker)
        if seat is None or seat.session != session or seat.is_drain_asked or seat.is_draining:
            return False
        seat.is_drain_asked = True
        self.changed.add(worker)
        seat.wake()
        self.share()
        return True

    def silent(self, since_s: float) -> list[str]:
        """Returns the workers without a message since this time."""
        return [seat.worker for seat in self._seats.values() if seat.heard_s < since_s]

    def share(self) -> None:
        """Assigns the queue processes; wakes the workers whose assignment has changed."""
        taking = {
            worker: seat.kind
            for worker, seat in self._seats.items()
            if not seat.is_draining and not seat.is_drain_asked
        }
        before = {worker: seat.queues for worker, seat in self._seats.items()}
        assigned = assign(taking, self._order, before, self._queues.breadth)
        for worker, seat in self._seats.items():
            queues = assigned.get(worker, ())
            if queues != seat.queues:
                seat.queues = queues
                self.changed.add(worker)
                seat.wake()

    def split(self, queues: Iterable[str]) -> tuple[list[str], list[str]]:
        """Splits queue processes into high and normal ones."""
        high = [queue for queue in queues if queue in self._queues.high]
        return high, [queue for queue in queues if queue not in self._queues.high]

    def served(self) -> dict[str, list[str]]:
        """Returns the workers of each queue process."""
        return {queue: [seat.worker for seat in self.all() if queue in seat.queues] for queue in self._order}
