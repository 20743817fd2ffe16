"""What waits in a queue process, and who has taken what of it for a while.

Invariants:
- An id is on the shelf at most once; who comes while it is there changes nothing.
- A lane (queue, route) holds at most `lane_max` tickets, taken ones included; those beyond are refused by name.
- Within a lane and priority the order is that of the tickets, whenever one comes. Between priorities the earlier
  virtual arrival wins: a priority counts as `aging_ms` of waiting a level; with 0 it is strict.
- A ticket that was taken is gone for everybody until it is put back or its time is over, and then it waits as before.
- A ticket is dropped when it has been here for as long as it was sent for: whoever sent it will send it again.
- Time comes in as an argument and never goes back. Nothing here is durable, and nothing needs to be.
"""

import heapq
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Generic, Protocol, TypeVar

import msgspec

Lane = tuple[str, str]
#: Entries of a heap that may be out of date before anybody looks for them.
_DEAD_MAX = 64


class Shelved(Protocol):
    """What the shelf has to know of a ticket."""

    @property
    def job_id(self) -> str: ...
    @property
    def route(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def order(self) -> int: ...


T = TypeVar("T", bound=Shelved)


class Wish(msgspec.Struct, frozen=True):
    """What somebody takes: these routes from these queues; an empty set stands for all."""

    routes: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()

    def wants(self, lane: Lane) -> bool:
        """Whether tickets of this lane are wanted."""
        queue, route = lane
        return (not self.routes or route in self.routes) and (not self.queues or queue in self.queues)


class Pushed(Enum):
    """What became of a ticket that was brought."""

    TAKEN = "taken"
    KNOWN = "known"
    FULL = "full"


class ShelfEntry(Generic[T]):
    """One ticket on the shelf."""

    __slots__ = ("arrived_ms", "drop_ms", "holder", "place", "ticket", "until_ms")

    def __init__(self, ticket: T, arrived_ms: int, drop_ms: int | None) -> None:
        self.ticket = ticket
        self.arrived_ms = arrived_ms
        #: When it is dropped; None: never.
        self.drop_ms = drop_ms
        #: Which of its entries in the heap is the live one; 0: none, it is taken or gone.
        self.place = 0
        #: Until when it is taken, and by whom.
        self.until_ms = 0
        self.holder = ""

    @property
    def is_taken(self) -> bool:
        return self.until_ms > 0


_Heap = list[tuple[int, int, ShelfEntry[T]]]


class Shelf(Generic[T]):
    """All tickets of one queue process."""

    def __init__(self, lane_max: int, aging_ms: int = 0) -> None:
        self.lane_max = lane_max
        self.aging_ms = aging_ms
        self._entries: dict[str, ShelfEntry[T]] = {}
        self._counts: dict[Lane, int] = {}
        #: What waits, by lane and priority, the smallest in order first.
        self._waiting: dict[tuple[str, str, int], _Heap[T]] = {}
        #: When a lease ends or a ticket is dropped.
        self._times: _Heap[T] = []
        self._places = 0
        self.taken = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def waiting(self) -> int:
        """How many can be taken."""
        return len(self._entries) - self.taken

    def lanes(self) -> dict[Lane, int]:
        """How many tickets there are of each lane."""
        return dict(self._counts)

    def room(self, lane: Lane) -> int:
        """How many more tickets of this lane there is room for."""
        return self.lane_max - self._counts.get(lane, 0)

    # -- what comes and goes

    def push(self, ticket: T, now_ms: int, keep_ms: int = 0, waited_ms: int = 0) -> Pushed:
        """Puts a ticket on the shelf, for so long; 0: until somebody deletes it. It may have waited elsewhere."""
        if ticket.job_id in self._entries:
            return Pushed.KNOWN
        lane = (ticket.queue, ticket.route)
        count = self._counts.get(lane, 0)
        if count >= self.lane_max:
            return Pushed.FULL
        self._counts[lane] = count + 1
        entry = self._entries[ticket.job_id] = ShelfEntry(
            ticket, now_ms - waited_ms, now_ms + keep_ms if keep_ms else None
        )
        if entry.drop_ms is not None:
            self._watch(entry, entry.drop_ms)
        self._lay_out(entry)
        return Pushed.TAKEN

    def lease(self, wish: Wish, holder: str, count: int, visibility_ms: int, now_ms: int) -> list[T]:
        """Takes the next tickets that are wanted; they are nobody else's for so long."""
        self.advance(now_ms)
        heads = [
            (self._virtual_arrival(heap[0][2]), heap[0][0], key)
            for key, heap in self._waiting.items()
            if wish.wants(key[:2])
        ]
        heapq.heapify(heads)
        taken: list[T] = []
        while heads and len(taken) < count:
            key = heapq.heappop(heads)[2]
            heap = self._waiting[key]
            entry = heapq.heappop(heap)[2]
            self._tidy(key, heap)
            self._hand_out(entry, holder, now_ms + visibility_ms)
            taken.append(entry.ticket)
            if heap:
                heapq.heappush(heads, (self._virtual_arrival(heap[0][2]), heap[0][0], key))
        return taken

    def release(self, job_ids: Iterable[str], holder: str = "") -> list[T]:
        """Puts back what is taken, by this holder if one is named; says which."""
        back: list[T] = []
        for job_id in job_ids:
            entry = self._entries.get(job_id)
            if entry is not None and entry.is_taken and (not holder or entry.holder == holder):
                self._take_back(entry)
                back.append(entry.ticket)
        return back

    def delete(self, job_ids: Iterable[str]) -> int:
        """Forgets tickets, taken or not; says how many."""
        return sum([self._remove(job_id) for job_id in job_ids])

    def advance(self, now_ms: int) -> list[T]:
        """Puts back what was taken for long enough, and drops what was kept for long enough; what waits again."""
        back: list[T] = []
        times = self._times
        while times and times[0][0] <= now_ms:
            at_ms, _, entry = heapq.heappop(times)
            if self._entries.get(entry.ticket.job_id) is not entry:
                continue
            if entry.drop_ms is not None and entry.drop_ms <= now_ms and not entry.until_ms > now_ms:
                self._remove(entry.ticket.job_id)
            elif entry.is_taken and entry.until_ms <= at_ms:
                self._take_back(entry)
                back.append(entry.ticket)
        return back

    def next_ms(self) -> int | None:
        """When `advance` may have something to do; None: never, as things are."""
        return self._times[0][0] if self._times else None

    # -- looking

    def peek(self, count: int) -> list[T]:
        """The next tickets in order, without taking any."""
        entries = [entry for entry in self._entries.values() if entry.place]
        entries.sort(key=lambda entry: (self._virtual_arrival(entry), entry.ticket.order))
        return [entry.ticket for entry in entries[:count]]

    def all(self) -> Iterator[ShelfEntry[T]]:
        """Everything that is here, in the order of arrival."""
        return iter(self._entries.values())

    # -- inside

    def _virtual_arrival(self, entry: ShelfEntry[T]) -> int:
        priority = entry.ticket.priority
        return entry.arrived_ms - priority * self.aging_ms if self.aging_ms else -priority

    def _lay_out(self, entry: ShelfEntry[T]) -> None:
        ticket = entry.ticket
        self._places += 1
        entry.place = self._places
        heap = self._waiting.setdefault((ticket.queue, ticket.route, ticket.priority), [])
        heapq.heappush(heap, (ticket.order, entry.place, entry))

    def _hand_out(self, entry: ShelfEntry[T], holder: str, until_ms: int) -> None:
        entry.place, entry.until_ms, entry.holder = 0, until_ms, holder
        self.taken += 1
        self._watch(entry, until_ms)

    def _take_back(self, entry: ShelfEntry[T]) -> None:
        entry.until_ms, entry.holder = 0, ""
        self.taken -= 1
        if entry.drop_ms is not None:
            self._watch(entry, entry.drop_ms)
        self._lay_out(entry)

    def _watch(self, entry: ShelfEntry[T], at_ms: int) -> None:
        self._places += 1
        heapq.heappush(self._times, (at_ms, self._places, entry))
        if len(self._times) > 4 * len(self._entries) + _DEAD_MAX:
            self._times = [item for item in self._times if self._entries.get(item[2].ticket.job_id) is item[2]]
            heapq.heapify(self._times)

    def _remove(self, job_id: str) -> bool:
        entry = self._entries.pop(job_id, None)
        if entry is None:
            return False
        ticket = entry.ticket
        lane = (ticket.queue, ticket.route)
        self._counts[lane] -= 1
        if not self._counts[lane]:
            del self._counts[lane]
        if entry.is_taken:
            self.taken -= 1
        else:
            entry.place = 0
            key = (ticket.queue, ticket.route, ticket.priority)
            self._tidy(key, self._waiting[key])
        return True

    def _tidy(self, key: tuple[str, str, int], heap: _Heap[T]) -> None:
        """The first of a heap waits; a heap without any is forgotten, so that none is looked at in vain."""
        while heap and heap[0][2].place != heap[0][1]:
            heapq.heappop(heap)
        if not heap:
            del self._waiting[key]
        elif len(heap) > 2 * self._counts.get(key[:2], 0) + _DEAD_MAX:
            heap[:] = [item for item in heap if item[2].place == item[1]]
            heapq.heapify(heap)
