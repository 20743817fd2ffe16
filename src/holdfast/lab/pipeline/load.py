"""A producer in a process of its own: prints what it measured as one line of JSON.

Run as `python -m holdfast.lab.pipeline.load SIDE WHAT COUNT`.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

import uvloop

from holdfast.lab.load import rate
from holdfast.lab.pipeline.sides import SIDES, Side

#: Callers at a time, and jobs of one batch; the same on both sides.
CALLERS = 64
BATCH = 500
BATCHES_AT_A_TIME = 4
#: How often an end is looked for; a look costs the database something.
_LOOK_S = 0.05
#: Nothing that is measured takes longer.
_PATIENCE_S = 120


async def together(side: Side, count: int) -> dict[str, object]:
    """Submits of one job each by many callers at a time, a second."""
    await rate(side.submit, max(count // 10, CALLERS), CALLERS)
    return {"rate": await rate(side.submit, count, CALLERS)}


async def alone(side: Side, count: int) -> dict[str, object]:
    """Submits of one job each, every one after the one before it was answered, a second."""
    await rate(side.submit, count // 10, 1)
    return {"rate": await rate(side.submit, count, 1)}


async def batched(side: Side, count: int) -> dict[str, object]:
    """Jobs in batches, a second."""
    await side.submit_many(BATCH)
    batches = await rate(lambda: side.submit_many(BATCH), count // BATCH, BATCHES_AT_A_TIME)
    return {"rate": batches * BATCH}


async def end_to_end(side: Side, count: int) -> dict[str, object]:
    """Jobs in batches until all of them have ended, a second."""
    before = await side.done() + BATCH
    await side.submit_many(BATCH)  # workers are awake
    await _wait_for(side, before)
    start = time.perf_counter()
    await rate(lambda: side.submit_many(BATCH), count // BATCH, BATCHES_AT_A_TIME)
    await _wait_for(side, before + count)
    return {"rate": count / (time.perf_counter() - start)}


async def _wait_for(side: Side, count: int) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while await side.done() < count:  # noqa: ASYNC110 - neither side tells of many ends
            await asyncio.sleep(_LOOK_S)


async def idle(side: Side, count: int) -> dict[str, object]:
    """One job at a time until its end is known, in seconds each."""
    seconds = []
    for _ in range(count // 10):
        await side.submit_and_wait()
    for _ in range(count):
        start = time.perf_counter()
        await side.submit_and_wait()
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds}


WHAT: dict[str, Callable[[Side, int], Awaitable[dict[str, object]]]] = {
    call.__name__: call for call in (together, alone, batched, end_to_end, idle)
}


async def main(side: str, what: str, count: int) -> None:
    """Measures one thing, of so many jobs: a multiple of what is submitted at a time."""
    assert count % (BATCH * BATCHES_AT_A_TIME) == 0 or what not in {"batched", "end_to_end"}
    async with SIDES[side]() as one:
        print(json.dumps(await WHAT[what](one, count)), flush=True)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
