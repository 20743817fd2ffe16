"""A queue process: waiting tickets, and workers that wait for them.

Invariants: waiting requests are answered as soon as a matching ticket comes, in their order; a request whose worker has
disconnected, or whose time is over, takes no ticket. Tickets that are lost with this process are sent again by the
watchers.
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import Annotated, Any

import msgspec

from holdfast import limits
from holdfast.clock import SystemClock
from holdfast.errors import InvalidArgumentError
from holdfast.server.auth.permissions import Scope
from holdfast.server.http.request import AdmittedRequest, HttpResponse, answer
from holdfast.server.http.routing import Route
from holdfast.topologies.pipeline.backend.messages import (
    WAIT_MS_MAX,
    LaneCapacities,
    LaneList,
    PushReply,
    PushTickets,
    TakenTickets,
    TakeRequest,
    TicketIds,
)
from holdfast.topologies.pipeline.backend.store import Ticket
from holdfast.topologies.pipeline.roles.counters import RoleCounters
from holdfast.topologies.pipeline.roles.role_health import RoleHealth, get, post
from holdfast.topologies.pipeline.roles.role_server import left
from holdfast.topologies.pipeline.roles.ticket_store import Lane, PushResult, TicketFilter, TicketStore

#: The wanted number of tickets of one lane: enough for fast workers between two polls of a watcher.
LANE_WANTED = 1_000
#: More are accepted if several watchers push concurrently: making rows visible again costs more than keeping tickets.
LANE_MAX = 2_500
_PEEKED_MAX = 100
#: A full lane reports free capacity once one quarter is free: less is not worth a claim.
_WORTH_PART = 4


class QueueConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a queue process. `kind` and `index` identify it for operators."""

    kind: str = "normal"
    index: int = 0
    lane_max: int = LANE_MAX
    lane_wanted: int = LANE_WANTED
    aging_ms: int = limits.AGING_MS_DEFAULT


class Peek(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The number of tickets to show."""

    count: Annotated[int, msgspec.Meta(ge=0)] = 1


class Waiter:
    """A request that waits for tickets."""

    __slots__ = ("ask", "done", "ticket_filter")

    def __init__(self, ask: TakeRequest, ticket_filter: TicketFilter, done: asyncio.Future[list[Ticket]]) -> None:
        self.ask = ask
        self.ticket_filter = ticket_filter
        self.done = done


class QueueRole:
    """The routes of one queue process."""

    def __init__(self, config: QueueConfig) -> None:
        self._config = config
        self._ticket_store: TicketStore[Ticket] = TicketStore(config.lane_max, config.aging_ms)
        #: The capacity of a lane beyond the wanted number.
        self._spare = max(0, config.lane_max - config.lane_wanted)
        self._now_ms = SystemClock().steady_ms
        #: In the order of the requests.
        self._waiters: dict[Waiter, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._is_stopping = False
        self.tally = RoleCounters(
            "queue",
            {
                "pushed": "Tickets that were put into the queue.",
                "refused": "Tickets that were refused because their lane was full.",
                "leases": "Tickets that workers took.",
                "released": "Tickets that were put back.",
                "expired": "Tickets that were not deleted in time and wait again.",
                "deleted": "Tickets that were deleted.",
            },
        )
        self.tally.gauge("waiting", "Waiting tickets.", lambda: self._ticket_store.waiting)
        self.tally.gauge("leased", "Tickets that workers have taken.", lambda: self._ticket_store.taken)

    def vitals(self) -> RoleHealth:
        """Returns the health and the metrics of this role."""
        return RoleHealth(
            "queue",
            health=lambda: {"type": self._config.kind, "index": self._config.index},
            families=self.tally.families,
            on_stop=self.let_go,
        )

    def routes(self) -> list[Route]:
        """Returns the routes of this role."""
        return [
            post("/queue/push", self.push, PushTickets, "Put tickets into the queue", Scope.SUBMIT),
            post("/queue/lease", self.lease, TakeRequest, "Take tickets until their visibility timeout"),
            post("/queue/release-lease", self.release, TicketIds, "Put tickets back"),
            post("/queue/delete", self.delete, TicketIds, "Delete tickets"),
            post("/queue/room", self.room, LaneList, "Free capacity of lanes", Scope.SUBMIT),
            msgspec.structs.replace(get("/queue/peek", self.peek, "The next tickets"), query=Peek),
            get("/queue/all", self.all, "All tickets"),
            get("/queue/stats", self.stats, "Statistics of the queue"),
        ]

    def let_go(self) -> None:
        """Answers all waiting requests at once, without tickets."""
        self._is_stopping = True
        for waiter in self._waiters:
            if not waiter.done.done():
                waiter.done.set_result([])
        if self._timer is not None:
            self._timer.cancel()

    # -- requests of other roles

    async def push(self, request: AdmittedRequest) -> HttpResponse:
        """Accepts tickets as far as there is capacity."""
        push: PushTickets = request.content
        return answer(self.shelve(push.tickets(), push.keep_ms))

    def shelve(self, tickets: Iterable[Ticket], keep_ms: int) -> PushReply:
        """Accepts tickets; also for callers in this process."""
        now_ms, accepted, new = self._now_ms(), 0, set[Lane]()
        full: list[str] = []
        full_lanes = set[Lane]()
        for ticket in tickets:
            pushed = self._ticket_store.push(ticket, now_ms, keep_ms, ticket.waited_ms)
            if pushed is PushResult.FULL:
                full.append(ticket.job_id)
                full_lanes.add((ticket.queue, ticket.route))
                continue
            accepted += 1
            if pushed is PushResult.TAKEN:
                self.tally.add("pushed")
                new.add((ticket.queue, ticket.route))
        self.tally.add("refused", len(full))
        self._serve(new)
        self._watch_time()
        return PushReply(accepted, full, [lane for lane in new - full_lanes if not self._room(lane)])

    async def lease(self, request: AdmittedRequest) -> HttpResponse:
        """Returns matching tickets, as soon as there are any; none if `wait_ms` is over before."""
        ask: TakeRequest = request.content
        if not 1 <= ask.count <= limits.LEASES_PER_GRANT_MAX:
            raise InvalidArgumentError(
                f"count must be 1 to {limits.LEASES_PER_GRANT_MAX}, got {ask.count}", reason="COUNT_INVALID"
            )
        if ask.visibility_ms < 1 or ask.wait_ms < 0:
            raise InvalidArgumentError("visibility_ms and wait_ms must be positive", reason="TIME_INVALID")
        ticket_filter = TicketFilter(frozenset(ask.types), frozenset(ask.queues))
        found = self._take(ask, ticket_filter)
        if not found and ask.wait_ms and not self._is_stopping:
            found = await self._wait(Waiter(ask, ticket_filter, asyncio.get_running_loop().create_future()), request)
        return answer(TakenTickets(found))

    async def release(self, request: AdmittedRequest) -> HttpResponse:
        """Puts back taken tickets."""
        named: TicketIds = request.content
        back = self._ticket_store.release(named.ids(), named.worker_id)
        self.tally.add("released", len(back))
        self._serve({(ticket.queue, ticket.route) for ticket in back})
        return answer({"released": len(back)})

    async def delete(self, request: AdmittedRequest) -> HttpResponse:
        """Deletes tickets, taken or not."""
        deleted = self._ticket_store.delete(request.content.ids())
        self.tally.add("deleted", deleted)
        return answer({"deleted": deleted})

    async def room(self, request: AdmittedRequest) -> HttpResponse:
        """Returns the free capacity of each lane; 0 while it is too small to be worth a claim."""
        self._advance()
        rooms = map(self._room, request.content.lanes)
        wanted = self._ticket_store.lane_max - self._spare
        return answer(LaneCapacities([room if room * _WORTH_PART >= wanted else 0 for room in rooms]))

    def _room(self, lane: Lane) -> int:
        """Returns how many more tickets of this lane are wanted."""
        return max(0, self._ticket_store.room(lane) - self._spare)

    # -- views for operators

    async def peek(self, request: AdmittedRequest) -> HttpResponse:
        """Returns the next tickets, without taking them."""
        self._advance()
        count = request.query.count if request.query is not None else 1
        return answer({"jobs": self._ticket_store.peek(min(count, _PEEKED_MAX))})

    async def all(self, request: AdmittedRequest) -> HttpResponse:
        """Returns all tickets, in the order of arrival."""
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
            for entry in self._ticket_store.all()
        ]
        return answer({"jobs": jobs, "count": len(jobs)})

    async def stats(self, request: AdmittedRequest) -> HttpResponse:
        """Returns the statistics of the tickets."""
        self._advance()
        ticket_store = self._ticket_store
        lanes = [
            {"queue": queue, "type": route, "jobs": count}
            for (queue, route), count in sorted(ticket_store.lanes().items())
        ]
        return answer(
            {
                "type": self._config.kind,
                "index": self._config.index,
                "waiting": ticket_store.waiting,
                "leased": ticket_store.taken,
                "lane_max": ticket_store.lane_max,
                "lanes": lanes,
                "workers_waiting": len(self._waiters),
                **self.tally.view(),
            }
        )

    # -- inside

    def _take(self, ask: TakeRequest, ticket_filter: TicketFilter) -> list[Ticket]:
        now_ms = self._now_ms()
        self._advance()
        found = self._ticket_store.lease(ticket_filter, ask.worker_id, ask.count, ask.visibility_ms, now_ms)
        if found:
            self.tally.add("leases", len(found))
            self._watch_time()
        return found

    async def _wait(self, waiter: Waiter, request: AdmittedRequest) -> list[Ticket]:
        self._waiters[waiter] = None
        leaving = asyncio.ensure_future(left(request))
        try:
            wait_s = min(waiter.ask.wait_ms, WAIT_MS_MAX) / 1_000
            awaited: list[asyncio.Future[Any]] = [waiter.done, leaving]
            await asyncio.wait(awaited, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            found = waiter.done.result() if waiter.done.done() else []
            if found and leaving.done():
                self._serve({(ticket.queue, ticket.route) for ticket in self._ticket_store.release(_ids(found))})
                return []
            return found
        finally:
            leaving.cancel()
            del self._waiters[waiter]

    def _serve(self, lanes: Collection[Lane]) -> None:
        """Answers the waiting requests that match these lanes, which have new tickets."""
        if not lanes:
            return
        for waiter in self._waiters:
            if not waiter.done.done() and any(map(waiter.ticket_filter.wants, lanes)):
                found = self._take(waiter.ask, waiter.ticket_filter)
                if found:
                    waiter.done.set_result(found)

    def _advance(self) -> None:
        """Ends expired leases, and drops old tickets."""
        back = self._ticket_store.advance(self._now_ms())
        if back:
            self.tally.add("expired", len(back))
            self._serve({(ticket.queue, ticket.route) for ticket in back})

    def _watch_time(self) -> None:
        """Sets a timer for the waiting requests; new requests advance the store themselves."""
        next_ms = self._ticket_store.next_ms()
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
