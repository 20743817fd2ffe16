"""A queue process: tickets that wait on a shelf, and workers that wait for them.

Invariants: who waits is answered as soon as something comes that it wants, in the order of asking; whoever has left, or
was kept waiting for as long as it said, takes nothing. What is lost with this process is sent again by the watchers.
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import Annotated, Any

import msgspec

from holdfast import limits
from holdfast.clock import SystemClock
from holdfast.errors import InvalidArgumentError
from holdfast.server.auth.permissions import Scope
from holdfast.server.http.request import Answer, Asked, answer
from holdfast.server.http.routing import Route
from holdfast.topologies.pipeline.backend.messages import (
    WAIT_MS_MAX,
    Lanes,
    Named,
    PushTickets,
    Rooms,
    ShelvedReply,
    Take,
    TakenTickets,
)
from holdfast.topologies.pipeline.backend.store import Ticket
from holdfast.topologies.pipeline.roles.counters import RoleCounters
from holdfast.topologies.pipeline.roles.role_health import RoleHealth, get, post
from holdfast.topologies.pipeline.roles.role_server import left
from holdfast.topologies.pipeline.roles.shelf import Lane, Pushed, Shelf, Wish

#: How many tickets of one lane are wanted here: enough for fast workers between two looks of a watcher.
LANE_WANTED = 1_000
#: What several watchers bring at the same time is taken, too: to make rows visible again costs more than tickets do.
LANE_MAX = 2_500
_PEEKED_MAX = 100
#: A lane that was full is worth a claim once this part of it is free: one quarter.
_WORTH_PART = 4


class QueueConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a queue process works. `kind` and `index` say which of the fixed list it is, for people."""

    kind: str = "normal"
    index: int = 0
    lane_max: int = LANE_MAX
    lane_wanted: int = LANE_WANTED
    aging_ms: int = limits.AGING_MS_DEFAULT


class Peek(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many tickets to look at."""

    count: Annotated[int, msgspec.Meta(ge=0)] = 1


class Waiter:
    """Somebody who is kept waiting."""

    __slots__ = ("ask", "done", "wish")

    def __init__(self, ask: Take, wish: Wish, done: asyncio.Future[list[Ticket]]) -> None:
        self.ask = ask
        self.wish = wish
        self.done = done


class QueueRole:
    """The routes of one queue process."""

    def __init__(self, config: QueueConfig) -> None:
        self._config = config
        self._shelf: Shelf[Ticket] = Shelf(config.lane_max, config.aging_ms)
        #: How many more a lane could take when it has as many as are wanted.
        self._spare = max(0, config.lane_max - config.lane_wanted)
        self._now_ms = SystemClock().steady_ms
        #: In the order of asking.
        self._waiters: dict[Waiter, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._is_stopping = False
        self.tally = RoleCounters(
            "queue",
            {
                "pushed": "Tickets that were put on the shelf.",
                "refused": "Tickets that found their lane full.",
                "leases": "Times that a worker took a ticket.",
                "released": "Tickets that were put back.",
                "expired": "Tickets that were not deleted in time and wait again.",
                "deleted": "Tickets that were deleted.",
            },
        )
        self.tally.gauge("waiting", "Tickets that wait.", lambda: self._shelf.waiting)
        self.tally.gauge("leased", "Tickets that workers have.", lambda: self._shelf.taken)

    def vitals(self) -> RoleHealth:
        """What it says of itself."""
        return RoleHealth(
            "queue",
            health=lambda: {"type": self._config.kind, "index": self._config.index},
            families=self.tally.families,
            on_stop=self.let_go,
        )

    def routes(self) -> list[Route]:
        """The rows of the table."""
        return [
            post("/queue/push", self.push, PushTickets, "Put tickets on the shelf", Scope.SUBMIT),
            post("/queue/lease", self.lease, Take, "Take tickets for a while"),
            post("/queue/release-lease", self.release, Named, "Put tickets back"),
            post("/queue/delete", self.delete, Named, "Forget tickets"),
            post("/queue/room", self.room, Lanes, "How many more tickets there is room for", Scope.SUBMIT),
            msgspec.structs.replace(get("/queue/peek", self.peek, "Who is next"), query=Peek),
            get("/queue/all", self.all, "Everything that is here"),
            get("/queue/stats", self.stats, "The shelf in numbers"),
        ]

    def let_go(self) -> None:
        """Whoever waits is answered now, with nothing."""
        self._is_stopping = True
        for waiter in self._waiters:
            if not waiter.done.done():
                waiter.done.set_result([])
        if self._timer is not None:
            self._timer.cancel()

    # -- what other roles ask for

    async def push(self, asked: Asked) -> Answer:
        """Accepts what there is room for."""
        push: PushTickets = asked.content
        return answer(self.shelve(push.tickets(), push.keep_ms))

    def shelve(self, tickets: Iterable[Ticket], keep_ms: int) -> ShelvedReply:
        """The same for whoever is in this process."""
        now_ms, accepted, new = self._now_ms(), 0, set[Lane]()
        full: list[str] = []
        full_lanes = set[Lane]()
        for ticket in tickets:
            pushed = self._shelf.push(ticket, now_ms, keep_ms, ticket.waited_ms)
            if pushed is Pushed.FULL:
                full.append(ticket.job_id)
                full_lanes.add((ticket.queue, ticket.route))
                continue
            accepted += 1
            if pushed is Pushed.TAKEN:
                self.tally.add("pushed")
                new.add((ticket.queue, ticket.route))
        self.tally.add("refused", len(full))
        self._serve(new)
        self._watch_time()
        return ShelvedReply(accepted, full, [lane for lane in new - full_lanes if not self._room(lane)])

    async def lease(self, asked: Asked) -> Answer:
        """What is wanted, at once if it is here; else as soon as it comes, or nothing when the time is over."""
        ask: Take = asked.content
        if not 1 <= ask.count <= limits.LEASES_PER_GRANT_MAX:
            raise InvalidArgumentError(
                f"expected count to be 1 to {limits.LEASES_PER_GRANT_MAX}, got {ask.count}", reason="COUNT_INVALID"
            )
        if ask.visibility_ms < 1 or ask.wait_ms < 0:
            raise InvalidArgumentError("expected visibility_ms and wait_ms to be positive", reason="TIME_INVALID")
        wish = Wish(frozenset(ask.types), frozenset(ask.queues))
        found = self._take(ask, wish)
        if not found and ask.wait_ms and not self._is_stopping:
            found = await self._wait(Waiter(ask, wish, asyncio.get_running_loop().create_future()), asked)
        return answer(TakenTickets(found))

    async def release(self, asked: Asked) -> Answer:
        """Puts tickets back that were taken."""
        named: Named = asked.content
        back = self._shelf.release(named.ids(), named.worker_id)
        self.tally.add("released", len(back))
        self._serve({(ticket.queue, ticket.route) for ticket in back})
        return answer({"released": len(back)})

    async def delete(self, asked: Asked) -> Answer:
        """Forgets tickets, whoever has them."""
        deleted = self._shelf.delete(asked.content.ids())
        self.tally.add("deleted", deleted)
        return answer({"deleted": deleted})

    async def room(self, asked: Asked) -> Answer:
        """How many more of each lane; none as long as that is too few for a claim to be worth it."""
        self._advance()
        rooms = map(self._room, asked.content.lanes)
        wanted = self._shelf.lane_max - self._spare
        return answer(Rooms([room if room * _WORTH_PART >= wanted else 0 for room in rooms]))

    def _room(self, lane: Lane) -> int:
        """How many more tickets of this lane are wanted."""
        return max(0, self._shelf.room(lane) - self._spare)

    # -- what people look at

    async def peek(self, asked: Asked) -> Answer:
        """Who is next, without being taken."""
        self._advance()
        count = asked.query.count if asked.query is not None else 1
        return answer({"jobs": self._shelf.peek(min(count, _PEEKED_MAX))})

    async def all(self, asked: Asked) -> Answer:
        """All tickets, in the order of arrival."""
        self._advance()
        now_ms = self._now_ms()
        jobs = [
            {
                **msgspec.to_builtins(entry.ticket),
                "state": "leased" if entry.is_taken else "waiting",
                "worker_id": entry.holder,
                "lease_ends_in_ms": max(0, entry.until_ms - now_ms),
                "waited_ms": now_ms - entry.arrived_ms,
            }
            for entry in self._shelf.all()
        ]
        return answer({"jobs": jobs, "count": len(jobs)})

    async def stats(self, asked: Asked) -> Answer:
        """The shelf in numbers."""
        self._advance()
        shelf = self._shelf
        lanes = [
            {"queue": queue, "type": route, "jobs": count} for (queue, route), count in sorted(shelf.lanes().items())
        ]
        return answer(
            {
                "type": self._config.kind,
                "index": self._config.index,
                "waiting": shelf.waiting,
                "leased": shelf.taken,
                "lane_max": shelf.lane_max,
                "lanes": lanes,
                "workers_waiting": len(self._waiters),
                **self.tally.view(),
            }
        )

    # -- inside

    def _take(self, ask: Take, wish: Wish) -> list[Ticket]:
        now_ms = self._now_ms()
        self._advance()
        found = self._shelf.lease(wish, ask.worker_id, ask.count, ask.visibility_ms, now_ms)
        if found:
            self.tally.add("leases", len(found))
            self._watch_time()
        return found

    async def _wait(self, waiter: Waiter, asked: Asked) -> list[Ticket]:
        self._waiters[waiter] = None
        leaving = asyncio.ensure_future(left(asked))
        try:
            wait_s = min(waiter.ask.wait_ms, WAIT_MS_MAX) / 1_000
            awaited: list[asyncio.Future[Any]] = [waiter.done, leaving]
            await asyncio.wait(awaited, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            found = waiter.done.result() if waiter.done.done() else []
            if found and leaving.done():
                self._serve({(ticket.queue, ticket.route) for ticket in self._shelf.release(_ids(found))})
                return []
            return found
        finally:
            leaving.cancel()
            del self._waiters[waiter]

    def _serve(self, lanes: Collection[Lane]) -> None:
        """Something of these lanes waits: for whoever waits for that."""
        if not lanes:
            return
        for waiter in self._waiters:
            if not waiter.done.done() and any(map(waiter.wish.wants, lanes)):
                found = self._take(waiter.ask, waiter.wish)
                if found:
                    waiter.done.set_result(found)

    def _advance(self) -> None:
        """What time does: leases end, and tickets grow old."""
        back = self._shelf.advance(self._now_ms())
        if back:
            self.tally.add("expired", len(back))
            self._serve({(ticket.queue, ticket.route) for ticket in back})

    def _watch_time(self) -> None:
        """Whoever waits is told by a timer; everybody else looks at the time when asking."""
        next_ms = self._shelf.next_ms()
        if next_ms is None or self._is_stopping or (self._timer is not None and self._timer_ms <= next_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0, next_ms - self._now_ms()) / 1_000
        self._timer, self._timer_ms = asyncio.get_running_loop().call_later(delay_s, self._look_at_time), next_ms

    def _look_at_time(self) -> None:
        self._timer = None
        self._advance()
        self._watch_time()


def _ids(tickets: Iterable[Ticket]) -> list[str]:
    return [ticket.job_id for ticket in tickets]
