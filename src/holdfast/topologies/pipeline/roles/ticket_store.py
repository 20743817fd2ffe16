"""The tickets of a queue process: those that wait, and those that workers have taken.

Invariants:
- A job id is in the store at most once; pushing it again changes nothing.
- A lane (queue, route) has at most `lane_max` tickets, including taken ones; more are refused.
- Within a lane and priority, tickets are sorted by their `order`, not by arrival. Between priorities the earlier
  virtual arrival wins: each step of priority counts as `aging_ms` of waiting; with 0, priorities are strict.
- A taken ticket is hidden until it is put back or its visibility timeout ends; then it waits as before.
- A ticket is dropped after the time for which it was sent: the watcher will send it again.
- Time is an argument and never goes back. Nothing here is durable, and nothing needs to be.
"""

import heapq
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Generic, Protocol, TypeVar

import msgspec

Lane = tuple[str, str]
#: How many outdated entries a heap may have before they are removed.
_DEAD_MAX = 64


class TicketFields(Protocol):
    """The fields of a ticket that the store needs."""

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


T = TypeVar("T", bound=TicketFields)


class TicketFilter(msgspec.Struct, frozen=True):
    """The routes and queues that a worker takes; an empty set means all."""

    routes: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()

    def wants(self, lane: Lane) -> bool:
        """Whether the worker takes tickets of this lane."""
        queue, route = lane
        return (not self.routes or route in self.routes) and (not self.queues or queue in self.queues)


class PushResult(Enum):
    """The result of a push."""

    TAKEN = "taken"
    KNOWN = "known"
    FULL = "full"


class TicketEntry(Generic[T]):
    """One ticket in the store."""

    __slots__ = ("arrived_ms", "drop_ms", "holder", "place", "ticket", "until_ms")

    def __init__(self, ticket: T, arrived_ms: int, drop_ms: int | None) -> None:
        self.ticket = ticket
        self.arrived_ms = arrived_ms
        #: When it is dropped; None: never.
        self.drop_ms = drop_ms
        #: The number of its valid entry in the heap; 0: none, the ticket is taken or removed.
        self.place = 0
        #: The end of the visibility timeout, and the worker; 0 if the ticket is not taken.
        self.until_ms = 0
        self.holder = ""

    @property
    def is_taken(self) -> bool:
        return self.until_ms > 0


_Heap = list[tuple[int, int, TicketEntry[T]]]


class TicketStore(Generic[T]):
    """All tickets of one queue process."""

    def __init__(self, lane_max: int, aging_ms: int = 0) -> None:
        self.lane_max = lane_max
        self.aging_ms = aging_ms
        self._entries: dict[str, TicketEntry[T]] = {}
        self._counts: dict[Lane, int] = {}
        #: Waiting tickets by lane and priority, the smallest `order` first.
        self._waiting: dict[tuple[str, str, int], _Heap[T]] = {}
        #: The times when a lease ends or a ticket is dropped.
        self._times: _Heap[T] = []
        self._places = 0
        self.taken = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def waiting(self) -> int:
        """The number of tickets that can be taken."""
        return len(self._entries) - self.taken

    def lanes(self) -> dict[Lane, int]:
        """Returns the number of tickets of each lane."""
        return dict(self._counts)

    def room(self, lane: Lane) -> int:
        """Returns the free capacity of this lane."""
        return self.lane_max - self._counts.get(lane, 0)

    # -- changes

    def push(self, ticket: T, now_ms: int, keep_ms: int = 0, waited_ms: int = 0) -> PushResult:
        """Adds a ticket for `keep_ms` (0: until it is deleted); `waited_ms` counts as waiting here."""
        if ticket.job_id in self._entries:
            return PushResult.KNOWN
        lane = (ticket.queue, ticket.route)
        count = self._counts.get(lane, 0)
        if count >= self.lane_max:
            return PushResult.FULL
        self._counts[lane] = count + 1
        entry = self._entries[ticket.job_id] = TicketEntry(
            ticket, now_ms - waited_ms, now_ms + keep_ms if keep_ms else None
        )
        if entry.drop_ms is not None:
            self._watch(entry, entry.drop_ms)
        self._lay_out(entry)
        return PushResult.TAKEN

    def lease(self, ticket_filter: TicketFilter, holder: str, count: int, visibility_ms: int, now_ms: int) -> list[T]:
        """Takes the next matching tickets, and hides them from others for `visibility_ms`."""
        self.advance(now_ms)
        heads = [
            (self._virtual_arrival(heap[0][2]), heap[0][0], key)
            for key, heap in self._waiting.items()
            if ticket_filter.wants(key[:2])
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
        """Puts back taken tickets, only those of `holder` if given, and returns them."""
        back: list[T] = []
        for job_id in job_ids:
            entry = self._entries.get(job_id)
            if entry is not None and entry.is_taken and (not holder or entry.holder == holder):
                self._take_back(entry)
                back.append(entry.ticket)
        return back

    def delete(self, job_ids: Iterable[str]) -> int:
        """Deletes tickets, taken or not, and returns their number."""
        return sum([self._remove(job_id) for job_id in job_ids])

    def advance(self, now_ms: int) -> list[T]:
        """Puts back tickets whose visibility timeout has ended, and returns them; drops tickets that are too old."""
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
        """Returns the time of the next possible effect of `advance`; None if there is none."""
        return self._times[0][0] if self._times else None

    # -- views

    def peek(self, count: int) -> list[T]:
        """Returns the next tickets in order, without taking them."""
        entries = [entry for entry in self._entries.values() if entry.place]
        entries.sort(key=lambda entry: (self._virtual_arrival(entry), entry.ticket.order))
        return [entry.ticket for entry in entries[:count]]

    def all(self) -> Iterator[TicketEntry[T]]:
        """Returns all tickets, in the order of arrival."""
        return iter(self._entries.values())

    # -- inside

    def _virtual_arrival(self, entry: TicketEntry[T]) -> int:
        priority = entry.ticket.priority
        return entry.arrived_ms - priority * self.aging_ms if self.aging_ms else -priority

    def _lay_out(self, entry: TicketEntry[T]) -> None:
        ticket = entry.ticket
        self._places += 1
        entry.place = self._places
        heap = self._waiting.setdefault((ticket.queue, ticket.route, ticket.priority), [])
        heapq.heappush(heap, (ticket.order, entry.place, entry))

    def _hand_out(self, entry: TicketEntry[T], holder: str, until_ms: int) -> None:
        entry.place, entry.until_ms, entry.holder = 0, until_ms, holder
        self.taken += 1
        self._watch(entry, until_ms)

    def _take_back(self, entry: TicketEntry[T]) -> None:
        entry.until_ms, entry.holder = 0, ""
        self.taken -= 1
        if entry.drop_ms is not None:
            self._watch(entry, entry.drop_ms)
        self._lay_out(entry)

    def _watch(self, entry: TicketEntry[T], at_ms: int) -> None:
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
        """Removes outdated entries, so that the first entry of a heap is valid; deletes an empty heap."""
        while heap and heap[0][2].place != heap[0][1]:
            heapq.heappop(heap)
        if not heap:
            del self._waiting[key]
        elif len(heap) > 2 * self._counts.get(key[:2], 0) + _DEAD_MAX:
            heap[:] = [item for item in heap if item[2].place == item[1]]
            heapq.heapify(heap)
