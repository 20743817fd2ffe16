"""Whom a worker asks for its next ticket, while high never ends and normal always has something, too."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from holdfast.backends.pipeline.pulling import Found, Puller
from holdfast.backends.ports import Introduction
from tests.integration.pipeline.happening import happens
from tests.integration.pipeline.patience import PatientLines
from tests.integration.pipeline.pipeline_here import QueueHere
from tests.integration.pipeline.test_roles_queue import ticket

_PLACES = 10


class OnePlace:
    """A worker with one place, whose jobs take long enough for every question that stands to be taken back."""

    def __init__(self, lines: PatientLines, queues: dict[str, list[QueueHere]]) -> None:
        self.taken: list[str] = []
        self._lines = lines
        self._queues = [*queues["high"], *queues["normal"]]
        self._puller = Puller(lines, Introduction("w-1", frozenset({"echo"}), slots=1), self._start)
        self._puller.place(*([one.address for one in queues[kind]] for kind in ("high", "normal")))

    async def run(self, places: int) -> list[str]:
        """Where so many tickets came from, one after the other."""
        pulling = asyncio.create_task(self._puller.run())
        for place in range(1, places + 1):
            self._puller.want(1)
            await happens(self._count, lambda count, place=place: count == place)  # type: ignore[misc]
            await happens(self._questions, lambda questions: not questions)
        self._puller.end()
        await pulling
        return self.taken

    async def _start(self, found: Found) -> int:
        self.taken += [address for address, _ in found]
        return len(found)

    async def _count(self) -> int:
        return len(self.taken)

    async def _questions(self) -> int:
        stats = [await self._lines.ask(one.address, "/queue/stats", kind=dict) for one in self._queues]
        return sum(one["workers_waiting"] for one in stats)


@pytest.mark.parametrize(
    ("count", "high", "normal"), [(2, (0,), (0,)), (2, (1,), (1,)), (2, (1,), (0, 1)), (3, (0, 2), (1, 2))]
)
async def test_normal_has_its_turns_wherever_its_tickets_are(
    count: int, high: tuple[int, ...], normal: tuple[int, ...]
) -> None:
    """One type is in few queue processes of many: two of ten places are normal's, and none of its processes waits."""
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
