"""Interrupts of short attempts at random times, on both kinds of event loop."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable

import pytest
import uvloop

from holdfast.ports import Assignment
from holdfast.worker.config import WorkerConfig
from holdfast.worker.executors.port import Ended
from holdfast.worker.handlers import Handler, Mode
from holdfast.worker.slots import Slots

ROUNDS = 300


def busy(_: Assignment) -> bytes:
    end_s = time.monotonic() + random.uniform(0, 0.003)
    while time.monotonic() < end_s:
        pass
    return b""


def swallows(assignment: Assignment) -> bytes:
    try:
        return busy(assignment)
    except BaseException:  # noqa: BLE001 - also swallows interrupts
        return b"swallowed"


def short(_: Assignment) -> bytes:
    return b""


HANDLERS = {function.__name__: Handler(function, Mode.THREAD) for function in (busy, swallows, short)}


async def outcomes_under_fire() -> tuple[int, Counter[int], Slots]:
    """Returns the number of attempts, how often each was reported as ended, and the slots."""
    seen: Counter[int] = Counter()

    def ended(pairs: list[Ended]) -> None:
        seen.update(row.token for _, row in pairs)

    slots, token = Slots(HANDLERS, WorkerConfig("w", 4, kill_grace_ms=60_000), ended, lambda _: None), 0
    for _ in range(ROUNDS):
        for _ in range(random.choice((1, 3, 10))):
            token += 1
            timeout_ms = random.choice((0, 0, 1, 2, 3))
            slots.take([Assignment(token, "j", random.choice(list(HANDLERS)), timeout_ms=timeout_ms)])
        await asyncio.sleep(random.uniform(0, 0.005))
        for context in [context for context in slots.contexts.values() if random.random() < 0.3]:
            slots.interrupt(context)
    while slots.contexts or slots.threads.awake:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.01)
    await slots.close()
    return token, seen, slots


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_every_attempt_ends_once_and_no_slot_is_lost(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Every attempt has one outcome and no thread is lost, whenever a cancel or a timeout comes."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        count, seen, slots = runner.run(outcomes_under_fire())
    assert seen == Counter(range(1, count + 1))
    assert slots.tally.written_off == 0
    assert len(slots.threads._slots) <= 4
