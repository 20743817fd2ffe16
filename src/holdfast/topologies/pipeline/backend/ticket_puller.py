"""Takes tickets from the queue processes of one worker, as long as it has free slots.

Invariants:
- No request is for more tickets than there are free slots. A queue process without tickets gets one long poll, which it
  answers when a ticket comes; the others get short requests.
- High comes before normal. But every fifth slot is offered to normal first, so that neither kind starves the other. A
  slot is offered to all queue processes of one kind before the other kind; the first one of a kind changes each time.
- Without free slots, long polls are canceled and tickets are put back after a short grace period.
- A queue process that is unavailable is skipped for a short time, and does not delay the others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from holdfast import limits
from holdfast.errors import HoldfastError
from holdfast.ports import Introduction
from holdfast.topologies.pipeline.backend.circuit_breaker import CircuitBreaker
from holdfast.topologies.pipeline.backend.http_client import RoleConnections
from holdfast.topologies.pipeline.backend.messages import TakenTickets, TakeRequest
from holdfast.topologies.pipeline.backend.store import Ticket
from holdfast.topologies.pipeline.backend.ticket_discarder import TicketDiscarder

#: The length of a long poll.
_WAIT_MS = 15_000
#: The visibility timeout of tickets: to start a job takes some milliseconds.
_VISIBILITY_MS = 5_000
_DEADLINE_S = 1.0
#: How long polls are kept without free slots; a shorter job does not cancel them.
_GRACE_S = 0.05
#: One of this many slots is offered to normal first.
_NORMAL_TURN = 5
_HIGH, _NORMAL = "high", "normal"

#: Tickets, and the queue process that each came from.
Found = list[tuple[str, Ticket]]


class TicketPuller:
    """Takes tickets from the queue processes; `start` receives them, and returns how many slots they have filled."""

    def __init__(
        self, lines: RoleConnections, introduction: Introduction, start: Callable[[Found], Awaitable[int]]
    ) -> None:
        self._lines = lines
        self._introduction = introduction
        self._start = start
        self._breaker = CircuitBreaker("queue process")
        self._putting_back = TicketDiscarder(lines, "/queue/release-lease", introduction.worker_id)
        self._high: tuple[str, ...] = ()
        self._normal: tuple[str, ...] = ()
        self._room = 0
        #: The number of slots that were filled so far.
        self._filled = 0
        self._turns = {_HIGH: 0, _NORMAL: 0}
        #: The long polls in progress, and the tickets that long polls have returned.
        self._polls: dict[str, asyncio.Task[None]] = {}
        self._found: dict[str, list[Ticket]] = {}
        self._stirred = asyncio.Event()
        self._is_ending = False

    @property
    def queues(self) -> list[str]:
        """The queue processes that it takes from."""
        return [*self._high, *self._normal]

    def want(self, count: int) -> None:
        """Adds free slots."""
        self._room += count
        self._stirred.set()

    def place(self, high: Sequence[str], normal: Sequence[str]) -> None:
        """Takes from these queue processes from now on."""
        self._high, self._normal = tuple(high), tuple(normal)
        for address in [address for address in self._polls if address not in self.queues]:
            self._polls[address].cancel()
        self._stirred.set()

    def end(self) -> None:
        """Sends no more requests; `run` ends once none is in progress."""
        self._is_ending = True
        self._stirred.set()

    async def run(self) -> None:
        """Takes tickets until `end` is called."""
        try:
            while not self._is_ending:
                self._stirred.clear()
                if self._room and (found := await self._next()):
                    await self._use(found)
                elif not self._room or not self._free(self.queues):
                    await self._rest()
        finally:
            await self._let_go()

    async def _use(self, found: Found) -> None:
        used = await self._start(found)
        self._room = max(0, self._room - used)
        self._filled += used

    async def _rest(self) -> None:
        """Waits for a change, or until a failed queue process may be called; without free slots, ends the polls."""
        is_full = not self._room
        if is_full:
            wait_s = _GRACE_S if self._has_any else None
        else:
            wait_s = self._breaker.wait_s([address for address in self.queues if address not in self._polls])
        try:
            async with asyncio.timeout(wait_s):
                await self._stirred.wait()
        except TimeoutError:
            if is_full:
                await self._let_go()

    @property
    def _has_any(self) -> bool:
        return bool(self._polls or self._found)

    async def _let_go(self) -> None:
        """Cancels the long polls, and puts back the tickets that they have returned."""
        polls = tuple(self._polls.values())
        for poll in polls:
            poll.cancel()
        if polls:
            await asyncio.wait(polls)
        for address, tickets in self._found.items():
            self.put_back([(address, ticket) for ticket in tickets])
        self._found.clear()
        await self._putting_back.flush()

    def put_back(self, found: Found) -> None:
        """Makes tickets available to other workers."""
        for address, ticket in found:
            self._putting_back.add(address, [ticket.job_id])

    # -- requests

    async def _next(self) -> Found:
        """Returns tickets for the free slots: those of long polls first, then those that are available at once."""
        found = self._collect()
        left = self._room - len(found)
        if left <= 0:
            self.put_back(found[self._room :])
            return found[: self._room]
        return [*found, *await self._ask_by_turns(left)]

    def _collect(self) -> Found:
        found = [
            (address, ticket)
            for address in self.queues
            if address in self._found
            for ticket in self._found.pop(address)
        ]
        for address in tuple(self._found):  # it is not assigned to this worker any more
            found += [(address, ticket) for ticket in self._found.pop(address)]
        return found

    async def _ask_by_turns(self, count: int) -> Found:
        """Offers most slots to high and some to normal; then to each the slots that the other has not filled."""
        turns = (self._filled + count) // _NORMAL_TURN - self._filled // _NORMAL_TURN
        free_high, free_normal = self._free(self._high), self._free(self._normal)
        if not free_high or not free_normal:
            turns = count if free_normal else 0
        high, normal = await asyncio.gather(self._ask(_HIGH, count - turns), self._ask(_NORMAL, turns))
        high += await self._ask(_HIGH, count - len(high) - len(normal))
        normal += await self._ask(_NORMAL, count - len(high) - len(normal))
        return [*high, *normal]

    def _free(self, addresses: Sequence[str]) -> list[str]:
        """Returns the queue processes that may have tickets: available, and without a long poll."""
        return [
            address
            for address in addresses
            if address not in self._polls and address not in self._found and not self._breaker.is_away(address)
        ]

    async def _ask(self, kind: str, count: int) -> Found:
        """Takes from one kind, in turn, until the slots are filled or no queue process may have more tickets."""
        addresses = self._high if kind == _HIGH else self._normal
        if count <= 0 or not self._free(addresses):
            return []
        self._turns[kind] += 1
        start = self._turns[kind] % len(addresses)
        turned = [*addresses[start:], *addresses[:start]]
        found: Found = []
        for _ in turned:  # a queue process that returned fewer tickets than requested is not free any more
            free = self._free(turned)
            if len(found) >= count or not free:
                break
            found += await self._ask_some(free, count - len(found))
        return found

    async def _ask_some(self, addresses: list[str], count: int) -> Found:
        """Divides the slots among some queue processes, and sends the requests concurrently."""
        each, more = divmod(count, len(addresses))
        shares = [(address, each + (index < more)) for index, address in enumerate(addresses)]
        parts = await asyncio.gather(*(self._ask_one(address, share) for address, share in shares if share))
        return [one for part in parts for one in part]

    async def _ask_one(self, address: str, count: int) -> Found:
        count = min(count, limits.LEASES_PER_GRANT_MAX)
        tickets = await self._take(address, count, 0)
        if tickets is None:
            return []
        if len(tickets) < count and not self._is_ending and address in self.queues and address not in self._polls:
            self._polls[address] = asyncio.get_running_loop().create_task(self._poll(address))
        return [(address, ticket) for ticket in tickets]

    async def _poll(self, address: str) -> None:
        """Repeats long polls until there are tickets, or the queue process does not respond."""
        try:
            tickets: list[Ticket] | None = []
            while tickets is not None and not tickets:
                tickets = await self._take(address, max(1, min(self._room, limits.LEASES_PER_GRANT_MAX)), _WAIT_MS)
            if tickets:
                self._found[address] = tickets
        finally:
            del self._polls[address]
            self._stirred.set()

    async def _take(self, address: str, count: int, wait_ms: int) -> list[Ticket] | None:
        """Returns the tickets; None if the queue process does not respond."""
        take = TakeRequest(
            worker_id=self._introduction.worker_id,
            types=sorted(self._introduction.types),
            queues=sorted(self._introduction.queues),
            count=count,
            wait_ms=wait_ms,
            visibility_ms=_VISIBILITY_MS,
        )
        deadline_s = _DEADLINE_S + wait_ms / 1_000
        try:
            taken = await self._lines.ask(address, "/queue/lease", take, kind=TakenTickets, deadline_s=deadline_s)
        except HoldfastError as error:
            self._breaker.missed(address, error)
            return None
        self._breaker.answered(address)
        return taken.jobs
