"""An exchange: routes tickets to queue processes by a fixed rule over fixed lists.

Invariants: a ticket goes to one queue process, which depends on its type, its priority and the number of its
deliveries; the reply says for each ticket whether it was accepted. An unavailable queue process does not delay the
others: its tickets are refused at once while it is known to be unavailable, and requests are sent concurrently.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.errors import HoldfastError
from holdfast.server.auth.permissions import Scope
from holdfast.server.http.request import AdmittedRequest, HttpResponse, answer
from holdfast.server.http.routing import Route
from holdfast.topologies.pipeline.backend.circuit_breaker import CircuitBreaker
from holdfast.topologies.pipeline.backend.http_client import RoleConnections
from holdfast.topologies.pipeline.backend.messages import (
    FullLanesReply,
    LaneCapacities,
    LaneList,
    PushReply,
    PushTickets,
    RoutedTickets,
)
from holdfast.topologies.pipeline.backend.store import FullLane, Ticket
from holdfast.topologies.pipeline.roles.assignment import is_high, queue_index
from holdfast.topologies.pipeline.roles.counters import RoleCounters
from holdfast.topologies.pipeline.roles.role_health import RoleHealth, get, post
from holdfast.topologies.pipeline.roles.ticket_store import Lane

#: A queue process responds in milliseconds, or is unavailable.
_DEADLINE_S = 1.0
#: The most tickets of one request.
_BATCH_MAX = 5_000


class ExchangeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The queue processes, `host:port` each: the routing rule uses their order, so all exchanges need the same one."""

    normal: tuple[str, ...]
    high: tuple[str, ...] = ()

    def of(self, ticket: Ticket) -> str:
        """Returns the queue process of a ticket; if there is none of its kind, one of the other kind."""
        queues = self.kind(is_high=is_high(ticket.priority))
        return queues[queue_index(ticket.route, ticket.deliveries, len(queues))]

    def kind(self, *, is_high: bool) -> tuple[str, ...]:
        """Returns the queue processes of a kind; if there are none, those of the other kind."""
        return (self.high or self.normal) if is_high else (self.normal or self.high)


class ExchangeRole:
    """The routes of one exchange."""

    def __init__(self, config: ExchangeConfig, lines: RoleConnections) -> None:
        self._config = config
        self._lines = lines
        self._breaker = CircuitBreaker("queue process")
        self._queues = dict.fromkeys((*config.normal, *config.high), 0)
        self.tally = RoleCounters(
            "exchange",
            {
                "routed": "Tickets that a queue process accepted.",
                "away": "Tickets whose queue process was unavailable.",
                "full": "Tickets whose lane was full.",
            },
        )

    def vitals(self) -> RoleHealth:
        """Returns the health and the metrics of this role."""
        return RoleHealth("exchange", families=self.tally.families)

    def routes(self) -> list[Route]:
        """Returns the routes of this role."""
        return [
            post("/exchange/push", self.push, PushTickets, "Route tickets to queue processes", Scope.SUBMIT),
            post(
                "/exchange/room",
                self.room,
                FullLanesReply,
                "Free capacity of lanes",
                Scope.SUBMIT,
            ),
            get("/exchange/stats", self.stats, "Statistics of the exchange"),
        ]

    async def push(self, request: AdmittedRequest) -> HttpResponse:
        """Routes tickets."""
        push: PushTickets = request.content
        return answer(await self.route(push.tickets(), push.keep_ms))

    async def route(self, tickets: Iterable[Ticket], keep_ms: int) -> RoutedTickets:
        """Routes tickets; also for callers in this process."""
        batches: dict[str, list[Ticket]] = {}
        for ticket in tickets:
            batches.setdefault(self._config.of(ticket), []).append(ticket)
        # High priorities are sent first, so that no worker takes normal tickets before them.
        parts = [
            part
            for kind in (self._config.kind(is_high=True), self._config.kind(is_high=False))
            for part in await self._bring_all(
                {place: batches.pop(place) for place in kind if place in batches}, keep_ms
            )
        ]
        routed = RoutedTickets(
            sum([part.taken for part in parts]),
            [job_id for part in parts for job_id in part.away],
            [job_id for part in parts for job_id in part.full],
            sorted({lane for part in parts for lane in part.lanes}),
        )
        for name, count in (("routed", routed.taken), ("away", len(routed.away)), ("full", len(routed.full))):
            self.tally.add(name, count)
        return routed

    async def _bring_all(self, batches: Mapping[str, Sequence[Ticket]], keep_ms: int) -> list[RoutedTickets]:
        return await asyncio.gather(
            *(
                self._bring(address, batch[start : start + _BATCH_MAX], keep_ms)
                for address, batch in batches.items()
                for start in range(0, len(batch), _BATCH_MAX)
            )
        )

    async def _bring(self, address: str, tickets: Sequence[Ticket], keep_ms: int) -> RoutedTickets:
        """Sends tickets to one queue process. Without a response, it may have them: a duplicate starts no job twice."""
        away = RoutedTickets(away=[ticket.job_id for ticket in tickets])
        if self._breaker.is_away(address):
            return away
        push = PushTickets(jobs=list(tickets), keep_ms=keep_ms)
        try:
            shelved = await self._lines.tell(address, "/queue/push", push, kind=PushReply, deadline_s=_DEADLINE_S)
        except HoldfastError as error:
            self._breaker.missed(address, error)
            return away
        self._breaker.answered(address)
        self._queues[address] += shelved.accepted
        full = set(shelved.full)
        lanes = {(ticket.queue, ticket.route) for ticket in tickets if ticket.job_id in full} if full else set()
        kinds = [is_urgent for is_urgent in (False, True) if address in self._config.kind(is_high=is_urgent)]
        named = [(*lane, is_urgent) for lane in (*lanes, *shelved.crowded) for is_urgent in kinds]
        return RoutedTickets(shelved.accepted, full=shelved.full, lanes=named)

    async def room(self, request: AdmittedRequest) -> HttpResponse:
        """Returns for each lane the free capacity of the queue process to which its next tickets go."""
        lanes: list[FullLane] = request.content.lanes
        wanted: dict[str, list[int]] = {}
        for index, (_, route, is_urgent) in enumerate(lanes):
            wanted.setdefault(self._home(route, is_high=is_urgent), []).append(index)
        rooms = [0] * len(lanes)
        found = await asyncio.gather(
            *(self._look(address, [lanes[index][:2] for index in indexes]) for address, indexes in wanted.items())
        )
        for indexes, part in zip(wanted.values(), found, strict=True):
            for index, room in zip(indexes, part, strict=False):
                rooms[index] = room
        return answer(LaneCapacities(rooms))

    def _home(self, route: str, *, is_high: bool) -> str:
        """Returns the queue process of a first delivery; while it is unavailable, that of a later delivery."""
        queues = self._config.kind(is_high=is_high)
        turns = [queues[queue_index(route, deliveries, len(queues))] for deliveries in range(1, 2 * len(queues) + 1)]
        return self._breaker.in_order(turns)[0]

    async def _look(self, address: str, lanes: list[Lane]) -> list[int]:
        """Requests free capacities; without a response they count as 1, because the tickets go elsewhere then."""
        try:
            told = await self._lines.tell(
                address, "/queue/room", LaneList(lanes=lanes), kind=LaneCapacities, deadline_s=_DEADLINE_S
            )
        except HoldfastError as error:
            self._breaker.missed(address, error)
            return [1] * len(lanes)
        self._breaker.answered(address)
        return told.rooms

    async def stats(self, request: AdmittedRequest) -> HttpResponse:
        """Returns the queue processes and the number of tickets that each has accepted."""
        return answer(
            {
                "normal": self._config.normal,
                "high": self._config.high,
                "queues_away": self._breaker.all(),
                "queues": self._queues,
                **self.tally.view(),
            }
        )
