"""A queue process over real HTTP: the calls of other roles, and those of people with curl."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest

from holdfast import limits
from holdfast.errors import InvalidArgumentError
from holdfast.topologies.pipeline.backend.messages import (
    LaneCapacities,
    LaneList,
    PushReply,
    PushTickets,
    TakenTickets,
    TakeRequest,
    TicketIds,
)
from holdfast.topologies.pipeline.backend.store import Ticket
from holdfast.topologies.pipeline.roles.queue import QueueConfig, QueueRole
from holdfast.topologies.pipeline.roles.role_server import RoleServer
from tests.integration.http_client import ask, connected, request
from tests.integration.pipeline.long_timeouts import PatientLines
from tests.integration.pipeline.wait_until import happens


def ticket(job_id: str, number: int = 0, **fields: str | int) -> Ticket:
    """A ticket with common defaults."""
    values = {"route": "echo", "queue": "default", "priority": 5, "deliveries": 1, **fields}
    return Ticket(job_id, number=number, **values)  # type: ignore[arg-type]


class Door:
    """One queue process and connections to it."""

    def __init__(self, server: RoleServer, address: str) -> None:
        self.server = server
        self.address = address
        self.lines = PatientLines()

    async def push(self, *tickets: Ticket, keep_ms: int = 0) -> PushReply:
        push = PushTickets(jobs=list(tickets), keep_ms=keep_ms)
        return await self.lines.ask(self.address, "/queue/push", push, kind=PushReply)

    async def take(self, **fields: object) -> list[str]:
        take = TakeRequest(**fields)  # type: ignore[arg-type]
        taken = await self.lines.ask(self.address, "/queue/lease", take, kind=TakenTickets)
        return [one.job_id for one in taken.jobs]

    async def stats(self) -> dict[str, int]:
        return await self.lines.ask(self.address, "/queue/stats", kind=dict)

    async def until_waiting(self, workers: int) -> None:
        await happens(self.stats, lambda stats: stats["workers_waiting"] == workers)


@asynccontextmanager
async def queue_process(lane_max: int = 100) -> AsyncIterator[Door]:
    """A queue process for the duration of a block."""
    role = QueueRole(QueueConfig(kind="high", index=1, lane_max=lane_max))
    server = RoleServer(role.routes(), role.vitals())
    door = Door(server, await server.start("127.0.0.1", 0))
    try:
        yield door
    finally:
        await server.stop()
        await door.lines.close()


async def test_commands_without_bodies_answer() -> None:
    """Every request without a body is answered, and only a lease changes anything."""
    async with queue_process() as door:
        for path, expected in {
            "/queue/push": {"accepted": 0, "full": [], "crowded": []},
            "/queue/lease": {"jobs": []},
            "/queue/release-lease": {"released": 0},
            "/queue/delete": {"deleted": 0},
            "/queue/room": {"rooms": []},
        }.items():
            assert (await ask(door.address, "POST", path)).json == expected
        job = {"job_id": "a", "type": "echo", "queue": "default", "priority": 7}
        assert (await ask(door.address, "POST", "/queue/push", job)).json == {"accepted": 1, "full": [], "crowded": []}
        assert [one["job_id"] for one in (await ask(door.address, "GET", "/queue/peek")).json["jobs"]] == ["a"]
        leased = (await ask(door.address, "POST", "/queue/lease")).json["jobs"]
        assert [(one["job_id"], one["route"], one["priority"]) for one in leased] == [("a", "echo", 7)]
        everything = (await ask(door.address, "GET", "/queue/all")).json
        assert [(one["job_id"], one["state"]) for one in everything["jobs"]] == [("a", "leased")]
        assert (await ask(door.address, "POST", "/queue/lease")).json == {"jobs": []}
        stats = (await ask(door.address, "GET", "/queue/stats")).json
        assert (stats["type"], stats["index"], stats["waiting"], stats["leased"]) == ("high", 1, 0, 1)
        assert (await ask(door.address, "POST", "/queue/release-lease", {"job_id": "a"})).json == {"released": 1}
        assert (await ask(door.address, "POST", "/queue/delete", {"job_id": "a"})).json == {"deleted": 1}
        assert "holdfast_queue_pushed_total 1.0" in (await ask(door.address, "GET", "/metrics")).body.decode()


async def test_job_is_pushed_in_the_words_of_a_submission() -> None:
    """A push accepts the fields of a submit together with the job's id."""
    async with queue_process() as door:
        submitted = {"type": "once", "payload": {"to": "you"}, "priority": "high"}
        assert (await ask(door.address, "POST", "/queue/push", {"job_id": "a", **submitted})).json["accepted"] == 1
        other = {"job_id": "b", "type": "once", "job_type": "mail", "priority": "low"}
        assert (await ask(door.address, "POST", "/queue/push", other)).json["accepted"] == 1
        leased = (await ask(door.address, "POST", "/queue/lease", {"count": 2})).json["jobs"]
        assert [(one["job_id"], one["route"], one["priority"]) for one in leased] == [
            ("a", "echo", 8),
            ("b", "mail", 2),
        ]
        assert (await ask(door.address, "GET", "/queue/peek?count=-1")).status == HTTPStatus.BAD_REQUEST


async def test_order_and_wishes() -> None:
    """A lease returns tickets by priority and then by age, and only of the requested types and queues."""
    async with queue_process() as door:
        await door.push(ticket("second", 2), ticket("urgent", 3, priority=9), ticket("first", 1))
        await door.push(ticket("strange", 0, route="other"), ticket("elsewhere", 0, queue="mail"))
        assert await door.take(types=["echo"], queues=["default"], count=9) == ["urgent", "first", "second"]
        assert await door.take(types=["echo"], count=9) == ["elsewhere"]
        assert await door.take(types=["missing"], count=9) == []


async def test_aged_ticket_goes_before_one_of_higher_priority() -> None:
    """A ticket that has waited long goes before one of higher priority, counted from the job's due time."""
    async with queue_process() as door:
        await door.push(ticket("usual", 1, due_ms=9), ticket("low", 2, priority=2, due_ms=9))
        await door.push(ticket("patient", 3, priority=2, due_ms=5, waited_ms=4 * limits.AGING_MS_DEFAULT))
        assert await door.take(count=9) == ["patient", "usual", "low"]


async def test_pushing_twice_changes_nothing() -> None:
    """A ticket that is pushed again is accepted and not stored twice, also while it is leased."""
    async with queue_process() as door:
        assert (await door.push(ticket("a"), ticket("a"))).accepted == 2
        assert await door.take(count=5) == ["a"]
        assert (await door.push(ticket("a"))).accepted == 1
        assert await door.take(count=5) == []


async def test_a_full_lane_holds_up_no_other() -> None:
    """Tickets beyond a lane's capacity are returned by id, and other types and queues are still accepted."""
    async with queue_process(lane_max=2) as door:
        shelved = await door.push(*(ticket(f"job-{number}", number) for number in range(4)))
        assert shelved == PushReply(2, ["job-2", "job-3"])
        assert (await door.push(ticket("other", route="mail"), ticket("there", queue="there"))).full == []
        lanes = LaneList(lanes=[("default", "echo"), ("default", "mail"), ("default", "unknown")])
        assert (await door.lines.ask(door.address, "/queue/room", lanes, kind=LaneCapacities)).rooms == [0, 1, 2]


async def test_a_lane_that_is_nearly_full_is_not_worth_a_claim() -> None:
    """A lane reports free capacity only when enough of it is free to be worth a claim."""
    async with queue_process(lane_max=8) as door:
        await door.push(*(ticket(f"job-{number}", number) for number in range(8)))
        lanes, rooms = LaneList(lanes=[("default", "echo")]), []
        for number in range(3):
            named = TicketIds(job_id=f"job-{number}")
            await door.lines.ask(door.address, "/queue/delete", named)
            rooms += (await door.lines.ask(door.address, "/queue/room", lanes, kind=LaneCapacities)).rooms
        assert rooms == [0, 2, 3]


async def test_long_poll_ends_as_soon_as_something_comes() -> None:
    """One push answers two waiting lease requests at once, each with tickets of its types."""
    async with queue_process() as door:
        mail = asyncio.create_task(door.take(types=["mail"], wait_ms=20_000))
        echo = asyncio.create_task(door.take(types=["echo"], count=3, wait_ms=20_000))
        await door.until_waiting(2)
        await door.push(ticket("a", 1), ticket("b", 2), ticket("m", 3, route="mail"))
        assert await echo == ["a", "b"]
        assert await mail == ["m"]


async def test_long_poll_ends_with_nothing() -> None:
    """A lease request that waits in vain is answered with no tickets at the end of its time."""
    async with queue_process() as door:
        assert await door.take(wait_ms=20) == []


async def test_ticket_of_an_expired_lease_goes_to_a_waiting_request() -> None:
    """A ticket whose lease expires goes to a lease request that is already waiting."""
    async with queue_process() as door:
        await door.push(ticket("a"), keep_ms=60_000)
        assert await door.take(visibility_ms=50) == ["a"]
        assert await door.take(wait_ms=20_000) == ["a"]
        assert (await door.stats())["expired"] == 1


async def test_ticket_is_dropped_when_it_is_worth_nothing_any_more() -> None:
    """A ticket is dropped at the end of its keep time and frees its place."""
    async with queue_process(lane_max=1) as door:
        await door.push(ticket("old"), keep_ms=20)
        await happens(lambda: door.push(ticket("new")), lambda shelved: not shelved.full)
        assert await door.take(count=5) == ["new"]


async def test_worker_releases_only_a_ticket_it_holds() -> None:
    """A worker can release only a ticket that it holds itself."""
    async with queue_process() as door:
        await door.push(ticket("a"))
        await door.take(worker_id="w-2")
        for worker, released in (("w-1", 0), ("w-2", 1)):
            named = TicketIds(job_ids=["a"], worker_id=worker)
            told = await door.lines.ask(door.address, "/queue/release-lease", named)
            assert told == {"released": released}


async def test_lease_request_with_a_closed_connection_takes_no_ticket() -> None:
    """A lease request whose connection was closed takes no ticket."""
    async with queue_process() as door:
        async with connected(door.address) as line:
            body = b'{"wait_ms": 20000}'
            line.writer.write(request("POST", "/queue/lease", body, {"Content-Type": "application/json"}))
            await door.until_waiting(1)
        await door.until_waiting(0)
        await door.push(ticket("a"))
        assert await door.take() == ["a"]


async def test_stopping_queue_process_answers_waiting_lease_requests() -> None:
    """A queue process that stops answers waiting lease requests with no tickets."""
    async with queue_process() as door:
        waiting = asyncio.create_task(door.take(wait_ms=20_000))
        await door.until_waiting(1)
        await door.server.stop()
        assert await waiting == []


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/queue/push", {"job_id": "a"}),
        ("/queue/push", {"type": "echo"}),
        ("/queue/push", {"job_id": "a", "type": "echo", "priority": "urgent"}),
        ("/queue/push", {"job_id": "a", "type": "echo", "unknown": 1}),
        ("/queue/push", {"jobs": [{"job_id": "a"}]}),
        ("/queue/lease", {"count": 0}),
        ("/queue/lease", {"count": 100_000}),
        ("/queue/lease", {"wait_ms": -1}),
        ("/queue/lease", {"visibility_ms": 0}),
        ("/queue/delete", {"job_ids": [1]}),
    ],
)
async def test_invalid_request_is_refused(path: str, content: object) -> None:
    """An invalid request is refused and does not change the shelf."""
    async with queue_process() as door:
        with pytest.raises(InvalidArgumentError):
            await door.lines.ask(door.address, path, content)
        assert (await door.stats())["waiting"] == 0
