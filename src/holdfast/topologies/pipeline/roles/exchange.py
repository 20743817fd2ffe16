"""An exchange: routes tickets to queue processes by a fixed rule over fixed lists.

Invariants: a ticket goes to one queue process, which its type, its priority and the number of its deliveries name; the
answer says of each ticket whether it was taken. A queue process that is away holds up nobody: its tickets are refused
at once while it is known to be, and others are sent to side by side.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.errors import HoldfastError
from holdfast.server.auth.permissions import Scope
from holdfast.server.http.request import Answer, Asked, answer
from holdfast.server.http.routing import Route
from holdfast.topologies.pipeline.backend.circuit_breaker import Absence
from holdfast.topologies.pipeline.backend.http_client import RoleConnections
from holdfast.topologies.pipeline.backend.messages import (
    FullLanesReply,
    Lanes,
    PushTickets,
    Rooms,
    RoutedTickets,
    ShelvedReply,
)
from holdfast.topologies.pipeline.backend.store import FullLane, Ticket
from holdfast.topologies.pipeline.roles.assignment import is_high, queue_index
from holdfast.topologies.pipeline.roles.counters import RoleCounters
from holdfast.topologies.pipeline.roles.role_health import RoleHealth, get, post
from holdfast.topologies.pipeline.roles.shelf import Lane

#: A queue process answers in milliseconds, or is away.
_DEADLINE_S = 1.0
#: A ticket is small: so many are one message.
_BATCH_MAX = 5_000


class ExchangeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The queue processes, `host:port` each: their order is part of the rule, so it is the same for all exchanges."""

    normal: tuple[str, ...]
    high: tuple[str, ...] = ()

    def of(self, ticket: Ticket) -> str:
        """Where a ticket goes; without queue processes of its kind, to the other kind."""
        queues = self.kind(is_high=is_high(ticket.priority))
        return queues[queue_index(ticket.route, ticket.deliveries, len(queues))]

    def kind(self, *, is_high: bool) -> tuple[str, ...]:
        """The queue processes of a kind."""
        return (self.high or self.normal) if is_high else (self.normal or self.high)


class ExchangeRole:
    """The routes of one exchange."""

    def __init__(self, config: ExchangeConfig, lines: RoleConnections) -> None:
        self._config = config
        self._lines = lines
        self._absence = Absence("queue process")
        self._queues = dict.fromkeys((*config.normal, *config.high), 0)
        self.tally = RoleCounters(
            "exchange",
            {
                "routed": "Tickets that a queue process took.",
                "away": "Tickets whose queue process was away.",
                "full": "Tickets whose lane was full.",
            },
        )

    def vitals(self) -> RoleHealth:
        """What it says of itself."""
        return RoleHealth("exchange", families=self.tally.families)

    def routes(self) -> list[Route]:
        """The rows of the table."""
        return [
            post("/exchange/push", self.push, PushTickets, "Route tickets to queue processes", Scope.SUBMIT),
            post(
                "/exchange/room",
                self.room,
                FullLanesReply,
                "How many more tickets of a lane would be taken",
                Scope.SUBMIT,
            ),
            get("/exchange/stats", self.stats, "The exchange in numbers"),
        ]

    async def push(self, asked: Asked) -> Answer:
        """Routes tickets."""
        push: PushTickets = asked.content
        return answer(await self.route(push.tickets(), push.keep_ms))

    async def route(self, tickets: Iterable[Ticket], keep_ms: int) -> RoutedTickets:
        """The same for whoever is in this process."""
        batches: dict[str, list[Ticket]] = {}
        for ticket in tickets:
            batches.setdefault(self._config.of(ticket), []).append(ticket)
        # What is urgent is there before anything else, so that no worker takes that first.
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
        """To one queue process. One that does not answer may have them: then they wait twice, and start once."""
        away = RoutedTickets(away=[ticket.job_id for ticket in tickets])
        if self._absence.is_away(address):
            return away
        push = PushTickets(jobs=list(tickets), keep_ms=keep_ms)
        try:
            shelved = await self._lines.tell(address, "/queue/push", push, kind=ShelvedReply, deadline_s=_DEADLINE_S)
        except HoldfastError as error:
            self._absence.missed(address, error)
            return away
        self._absence.answered(address)
        self._queues[address] += shelved.accepted
        full = set(shelved.full)
        lanes = {(ticket.queue, ticket.route) for ticket in tickets if ticket.job_id in full} if full else set()
        kinds = [is_urgent for is_urgent in (False, True) if address in self._config.kind(is_high=is_urgent)]
        named = [(*lane, is_urgent) for lane in (*lanes, *shelved.crowded) for is_urgent in kinds]
        return RoutedTickets(shelved.accepted, full=shelved.full, lanes=named)

    async def room(self, asked: Asked) -> Answer:
        """For fresh tickets of each lane: the room of the queue process that they go to."""
        lanes: list[FullLane] = asked.content.lanes
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
        return answer(Rooms(rooms))

    def _home(self, route: str, *, is_high: bool) -> str:
        """Where fresh tickets go; while that one is away, where they go then."""
        queues = self._config.kind(is_high=is_high)
        turns = [queues[queue_index(route, deliveries, len(queues))] for deliveries in range(1, 2 * len(queues) + 1)]
        return self._absence.in_order(turns)[0]

    async def _look(self, address: str, lanes: list[Lane]) -> list[int]:
        """One that is away cannot say: whatever would go to it is worth a claim, and goes elsewhere."""
        try:
            told = await self._lines.tell(
                address, "/queue/room", Lanes(lanes=lanes), kind=Rooms, deadline_s=_DEADLINE_S
            )
        except HoldfastError as error:
            self._absence.missed(address, error)
            return [1] * len(lanes)
        self._absence.answered(address)
        return told.rooms

    async def stats(self, asked: Asked) -> Answer:
        """What went where."""
        return answer(
            {
                "normal": self._config.normal,
                "high": self._config.high,
                "queues_away": self._absence.all(),
                "queues": self._queues,
                **self.tally.view(),
            }
        )
