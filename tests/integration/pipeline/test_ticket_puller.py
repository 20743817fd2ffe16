"""The choice of queue processes from which a worker requests its next ticket, while both high and normal have some."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from holdfast import limits
from holdfast.errors import HoldfastError
from holdfast.ports import Introduction
from holdfast.topologies.pipeline.backend.ticket_puller import Found, TicketPuller
from tests.integration.pipeline.long_timeouts import PatientLines
from tests.integration.pipeline.pipeline_in_process import QueueHere
from tests.integration.pipeline.test_roles_queue import ticket
from tests.integration.pipeline.wait_until import happens

_PLACES = 10


class FailingLines(PatientLines):
    """Counts the calls that fail."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0

    async def _call(self, *arguments: Any) -> bytes:  # noqa: ANN401 - as in the class above
        try:
            return await super()._call(*arguments)
        except HoldfastError:
            self.failures += 1
            raise

    async def failed(self) -> int:
        return self.failures


class OnePlace:
    """A worker with one slot, whose jobs last until every open request has been withdrawn."""

    def __init__(self, lines: PatientLines, queues: dict[str, list[QueueHere]]) -> None:
        self.taken: list[str] = []
        self._lines = lines
        self._queues = [*queues["high"], *queues["normal"]]
        self._puller = TicketPuller(lines, Introduction("w-1", frozenset({"echo"}), slots=1), self._start)
        self._puller.place(*([one.address for one in queues[kind]] for kind in ("high", "normal")))

    async def run(self, places: int) -> list[str]:
        """Takes the given number of tickets and returns their queue processes in order."""
        pulling = asyncio.create_task(self._puller.run())
        for place in range(1, places + 1):
            self._puller.want(1)
            await happens(self._count, lambda count, place=place: count == place)  # type: ignore[misc]
            await happens(self.questions, lambda questions: not questions)
        self._puller.end()
        await pulling
        return self.taken

    async def _start(self, found: Found) -> int:
        self.taken += [address for address, _ in found]
        return len(found)

    async def _count(self) -> int:
        return len(self.taken)

    async def questions(self) -> int:
        """The number of open requests."""
        stats = [await self._lines.ask(one.address, "/queue/stats", kind=dict) for one in self._queues]
        return sum(one["workers_waiting"] for one in stats)


async def test_queue_process_that_comes_back_is_asked_though_timers_are_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker requests tickets from a restarted queue process, also if its retry timer fires slightly early."""
    loop = asyncio.get_running_loop()
    exact = loop.call_at

    def early(when: float, callback: Any, *arguments: Any, context: Any = None) -> asyncio.TimerHandle:  # noqa: ANN401
        return exact(when - 0.01, callback, *arguments, context=context)

    monkeypatch.setattr(loop, "call_at", early)
    queue, lines = QueueHere("normal", 100), FailingLines()
    await queue.start()
    one = OnePlace(lines, {"high": [], "normal": [queue]})
    running = asyncio.create_task(one.run(1))
    await happens(one.questions)
    await queue.kill()
    await happens(lines.failed)
    await queue.start()
    queue.role.shelve([ticket("job", 1)], 0)
    assert await running == [queue.address]
    await queue.kill()
    await lines.close()


@pytest.mark.parametrize(
    ("count", "high", "normal"), [(2, (0,), (0,)), (2, (1,), (1,)), (2, (1,), (0, 1)), (3, (0, 2), (1, 2))]
)
async def test_normal_has_its_turns_wherever_its_tickets_are(
    count: int, high: tuple[int, ...], normal: tuple[int, ...]
) -> None:
    """Two of ten grants are normal, and come from all normal queue processes with tickets, however few these are."""
    queues = {kind: [QueueHere(kind, 100) for _ in range(count)] for kind in ("high", "normal")}
    lines = PatientLines()
    async with AsyncExitStack() as closing:
        closing.push_async_callback(lines.close)
        for kind, filled in (("high", high), ("normal", normal)):
            for index, queue in enumerate(queues[kind]):
                await queue.start()
                closing.push_async_callback(queue.kill)
                if index in filled:
                    queue.role.shelve([ticket(f"{kind}-{index}-{number}", number) for number in range(_PLACES)], 0)
        taken = await OnePlace(lines, queues).run(_PLACES)
    usual = [queues["normal"][index].address for index in normal]
    assert [address in usual for address in taken] == ([False] * 4 + [True]) * 2
    assert {address for address in taken if address in usual} == set(usual)


@pytest.mark.parametrize("is_there_first", [True, False], ids=["what is there", "what comes later"])
async def test_room_for_more_than_a_queue_process_gives_at_a_time_is_filled(*, is_there_first: bool) -> None:
    """A worker with more free slots than one response can fill gets all tickets in several requests."""
    wanted, queue, lines = 2 * limits.LEASES_PER_GRANT_MAX + 3, QueueHere("normal", 5_000), FailingLines()
    tickets = [ticket(f"job-{number}", number) for number in range(wanted)]
    found: list[str] = []
    is_full = asyncio.Event()

    async def start(some: Found) -> int:
        found.extend(one.job_id for _, one in some)
        if len(found) >= wanted:
            is_full.set()
        return len(some)

    async def asks() -> int:
        return int((await lines.ask(queue.address, "/queue/stats", kind=dict))["workers_waiting"])

    await queue.start()
    if is_there_first:
        queue.role.shelve(tickets, 0)
    puller = TicketPuller(lines, Introduction("w-1", frozenset({"echo"}), slots=1), start)
    puller.place([], [queue.address])
    pulling = asyncio.create_task(puller.run())
    puller.want(wanted)
    if not is_there_first:
        await happens(asks)
        queue.role.shelve(tickets, 0)
    await is_full.wait()
    assert (sorted(found), lines.failures) == (sorted(one.job_id for one in tickets), 0)
    puller.end()
    await pulling
    await queue.kill()
    await lines.close()
