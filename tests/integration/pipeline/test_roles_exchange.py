"""Exchanges over real queue processes: routing of tickets, and queue processes that are down."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast.errors import UnavailableError
from holdfast.topologies.pipeline.backend.messages import FullLanesReply, LaneCapacities, PushTickets, RoutedTickets
from holdfast.topologies.pipeline.roles.assignment import queue_index
from holdfast.topologies.pipeline.roles.exchange import ExchangeConfig, ExchangeRole
from holdfast.topologies.pipeline.roles.exchange_clients import ExchangeClients
from holdfast.topologies.pipeline.roles.role_server import RoleServer
from tests.integration.http_client import ask
from tests.integration.pipeline.long_timeouts import PatientLines
from tests.integration.pipeline.pipeline_in_process import QueueHere
from tests.integration.pipeline.test_roles_queue import ticket


class Market:
    """An exchange and its queue processes."""

    def __init__(self, normal: list[QueueHere], high: list[QueueHere]) -> None:
        self.normal, self.high = normal, high
        self.lines = PatientLines()
        self.address = ""

    async def push(self, push: PushTickets) -> RoutedTickets:
        return await self.lines.tell(self.address, "/exchange/push", push, kind=RoutedTickets)

    async def shelf(self, queue: QueueHere) -> list[str]:
        listed = await self.lines.ask(queue.address, "/queue/all")
        return [one["job_id"] for one in listed["jobs"]]


@asynccontextmanager
async def market(normal: int = 3, high: int = 1, lane_max: int = 100) -> AsyncIterator[Market]:
    """An exchange over the given numbers of queue processes."""
    here = Market(
        [QueueHere("normal", lane_max) for _ in range(normal)], [QueueHere("high", lane_max) for _ in range(high)]
    )
    for queue in (*here.normal, *here.high):
        await queue.start()
    config = ExchangeConfig(
        normal=tuple(queue.address for queue in here.normal), high=tuple(queue.address for queue in here.high)
    )
    role = ExchangeRole(config, here.lines)
    server = RoleServer(role.routes(), role.vitals())
    here.address = await server.start("127.0.0.1", 0)
    try:
        yield here
    finally:
        await server.stop(0)
        for queue in (*here.normal, *here.high):
            await queue.kill()
        await here.lines.close()


async def test_tickets_go_where_the_rule_says() -> None:
    """The exchange routes a ticket by type and deliveries, and a priority above the default to a high queue process."""
    async with market() as here:
        tickets = [
            ticket(f"{route}-{deliveries}", route=route, deliveries=deliveries)
            for route in ("echo", "mail", "resize")
            for deliveries in range(1, 5)
        ]
        urgent = [ticket("urgent", priority=6, route="mail"), ticket("usual", priority=5, route="mail")]
        routed = await here.push(PushTickets(jobs=[*tickets, *urgent]))
        assert routed == RoutedTickets(taken=14)
        for one in tickets:
            queue = here.normal[queue_index(one.route, one.deliveries, 3)]
            assert one.job_id in await here.shelf(queue)
        assert await here.shelf(here.high[0]) == ["urgent"]


async def test_dead_queue_process_does_not_hold_up_other_tickets() -> None:
    """While a queue process is down, the exchange returns its tickets by id and accepts others."""
    async with market() as here:
        index = queue_index("echo", 1, 3)
        other = next(f"t{number}" for number in range(99) if queue_index(f"t{number}", 1, 3) != index)
        await here.normal[index].kill()
        for number in range(3):
            routed = await here.push(PushTickets(jobs=[ticket(f"a{number}"), ticket(f"b{number}", route=other)]))
            assert routed == RoutedTickets(1, away=[f"a{number}"])
        stats = await here.lines.ask(here.address, "/exchange/stats")
        assert stats["queues_away"] == [here.normal[index].address]
        assert (stats["routed"], stats["away"]) == (3, 3)
        await here.normal[index].start()
        routed = await here.push(PushTickets(jobs=[ticket("again")]))
        while routed.away:  # the exchange does not retry it at once
            routed = await here.push(PushTickets(jobs=[ticket("again")]))
        assert routed.taken == 1


async def test_full_lanes_are_named() -> None:
    """The exchange names full lanes to the watcher, and later their free capacity."""
    async with market(lane_max=2) as here:
        routed = await here.push(PushTickets(jobs=[ticket(f"job-{number}", number) for number in range(3)]))
        assert routed == RoutedTickets(2, full=["job-2"], lanes=[("default", "echo", False)])
        lanes = FullLanesReply(
            lanes=[("default", "echo", False), ("default", "mail", False), ("default", "echo", True)]
        )
        rooms = await here.lines.tell(here.address, "/exchange/room", lanes, kind=LaneCapacities)
        assert rooms.rooms == [0, 2, 2]  # the high queue process has free capacity
        urgent = [ticket(f"urgent-{number}", priority=9) for number in range(2)]
        await here.push(PushTickets(jobs=urgent))
        rooms = await here.lines.tell(here.address, "/exchange/room", lanes, kind=LaneCapacities)
        assert rooms.rooms == [0, 2, 0]


async def test_room_is_looked_for_where_tickets_go_while_a_queue_process_is_away() -> None:
    """The exchange checks the capacity of a lane where its tickets go while a queue process is down."""
    async with market(lane_max=2) as here:
        lanes = FullLanesReply(lanes=[("default", "echo", False)])
        await here.push(PushTickets(jobs=[ticket(f"job-{number}", number) for number in range(3)]))
        await here.normal[queue_index("echo", 1, 3)].kill()
        for _ in range(2):  # first it is found to be down, then it is known
            rooms = await here.lines.tell(here.address, "/exchange/room", lanes, kind=LaneCapacities)
            assert rooms.rooms[0] > 0


async def test_exchanges_stand_in_for_each_other() -> None:
    """A watcher uses the next exchange if one is down, and gets UNAVAILABLE if all are."""
    async with market() as here:
        exchanges = ExchangeClients(["127.0.0.1:9", here.address], here.lines)
        for number in range(4):
            assert (await exchanges.push([ticket(f"job-{number}")], 0)).taken == 1
        assert exchanges.breaker.all() == ["127.0.0.1:9"]
        with pytest.raises(UnavailableError):
            await ExchangeClients(["127.0.0.1:9"], here.lines).push([ticket("a")], 0)


async def test_commands_without_bodies_answer() -> None:
    """Every request without a body is answered and changes nothing."""
    async with market() as here:
        told = (await ask(here.address, "POST", "/exchange/push")).json
        assert told == {"taken": 0, "away": [], "full": [], "lanes": []}
        assert (await ask(here.address, "GET", "/exchange/stats")).json["routed"] == 0
