"""A producer in a process of its own: prints what it measured as one line of JSON.

Run as `python -m holdfast_lab.bench.pipeline.load SIDE WHAT COUNT`.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

import uvloop

from holdfast_lab.bench.pipeline.contestants import SIDES, Contestant
from holdfast_lab.measure.timing import durations, rate

#: Concurrent callers, and jobs of one batch; the same on both sides.
CALLERS = 64
BATCH = 500
BATCHES_AT_A_TIME = 4
#: Interval of counting ends; a count costs the database something.
_LOOK_S = 0.05
#: A measurement that takes longer has failed.
_PATIENCE_S = 120


async def together(side: Contestant, count: int) -> dict[str, object]:
    """Rate of submits of one job each by concurrent callers."""
    await rate(side.submit, max(count // 10, CALLERS), CALLERS)
    return {"rate": await rate(side.submit, count, CALLERS)}


async def alone(side: Contestant, count: int) -> dict[str, object]:
    """Rate of submits of one job each by one caller."""
    await rate(side.submit, count // 10, 1)
    return {"rate": await rate(side.submit, count, 1)}


async def batched(side: Contestant, count: int) -> dict[str, object]:
    """Rate of jobs submitted in batches."""
    await side.submit_many(BATCH)
    batches = await rate(lambda: side.submit_many(BATCH), count // BATCH, BATCHES_AT_A_TIME)
    return {"rate": batches * BATCH}


async def end_to_end(side: Contestant, count: int) -> dict[str, object]:
    """Rate of jobs from the first submit of a batch until all have ended."""
    before = await side.done() + BATCH
    await side.submit_many(BATCH)  # wakes the workers
    await _wait_for(side, before)
    start = time.perf_counter()
    await rate(lambda: side.submit_many(BATCH), count // BATCH, BATCHES_AT_A_TIME)
    await _wait_for(side, before + count)
    return {"rate": count / (time.perf_counter() - start)}


async def _wait_for(side: Contestant, count: int) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while await side.done() < count:  # noqa: ASYNC110 - neither side reports the ends of many jobs
            await asyncio.sleep(_LOOK_S)


async def idle(side: Contestant, count: int) -> dict[str, object]:
    """Seconds from the submit of one job until its end is known, job by job."""
    await durations(side.submit_and_wait, count // 10)
    return {"seconds": await durations(side.submit_and_wait, count)}


WHAT: dict[str, Callable[[Contestant, int], Awaitable[dict[str, object]]]] = {
    call.__name__: call for call in (together, alone, batched, end_to_end, idle)
}


async def main(side: str, what: str, count: int) -> None:
    """Measure one thing with this many jobs, a multiple of the jobs submitted at a time."""
    assert count % (BATCH * BATCHES_AT_A_TIME) == 0 or what not in {"batched", "end_to_end"}
    async with SIDES[side]() as one:
        print(json.dumps(await WHAT[what](one, count)), flush=True)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
