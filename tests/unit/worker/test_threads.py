"""The number of threads that are woken for short and for long jobs."""

import asyncio
import math
import threading
from collections.abc import AsyncIterator

import pytest

from holdfast.ports import Assignment
from holdfast.worker.config import WorkerConfig
from holdfast.worker.executors.port import Ended
from holdfast.worker.handlers import Handler, Mode
from holdfast.worker.slots import Slots

SLOTS = 4


class Bench:
    """Slots with two handlers, and the threads in which short jobs ran."""

    def __init__(self) -> None:
        self.ended: asyncio.Queue[Ended] = asyncio.Queue()
        self.threads: set[int] = set()
        self.barrier = threading.Barrier(SLOTS)
        handlers = {"short": Handler(self._short, Mode.THREAD), "together": Handler(self._together, Mode.THREAD)}
        self.slots = Slots(handlers, WorkerConfig("w", SLOTS), self._ended, lambda _: None)

    def _ended(self, ended: list[Ended]) -> None:
        for pair in ended:
            self.ended.put_nowait(pair)

    def _short(self, _: Assignment) -> bytes:
        self.threads.add(threading.get_ident())
        return b""

    def _together(self, _: Assignment) -> bytes:
        self.barrier.wait(60)
        return b""


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.slots.close()


async def test_jobs_that_come_one_by_one_share_a_thread(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parked thread is woken before another one is created."""
    # On a stalled machine a job would seem long enough to justify another thread.
    monkeypatch.setattr("holdfast.worker.executors.threads._WORTH_A_THREAD_S", math.inf)
    for token in range(1, 50):
        bench.slots.take([Assignment(token, "j", "short")])
        await bench.ended.get()
    assert len(bench.threads) <= 2


async def test_jobs_that_wait_for_each_other_get_all_slots(bench: Bench) -> None:
    """More threads are woken while jobs wait, until every slot is in use."""
    bench.slots.take([Assignment(token, "j", "together") for token in range(1, 2 * SLOTS + 1)])
    for _ in range(2 * SLOTS):
        await bench.ended.get()
    assert bench.slots.threads.awake <= SLOTS


async def test_every_one_of_many_ends(bench: Bench) -> None:
    """Each of thousands of short jobs in large batches has one outcome."""
    count = 5_000
    for first in range(1, count, 500):
        bench.slots.take([Assignment(token, "j", "short") for token in range(first, first + 500)])
        await asyncio.sleep(0)
    tokens = {(await bench.ended.get())[1].token for _ in range(count)}
    assert len(tokens) == count
    assert bench.ended.empty()
    assert bench.slots.contexts == {}
