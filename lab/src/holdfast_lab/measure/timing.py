"""Rates and durations of calls."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

Call = Callable[[], Awaitable[object]]


async def rate(call: Call, times: int, lanes: int) -> float:
    """Calls per second with `lanes` in flight."""

    async def lane() -> None:
        for _ in range(times // lanes):
            await call()

    start = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(lanes)))
    return times // lanes * lanes / (time.perf_counter() - start)


async def in_lanes(calls: Sequence[Awaitable[object]], lanes: int) -> None:
    """Await all calls, so many at a time."""

    async def lane(number: int) -> None:
        for call in calls[number::lanes]:
            await call

    await asyncio.gather(*(lane(number) for number in range(lanes)))


async def durations(call: Call, count: int) -> list[float]:
    """Seconds of each of `count` calls, one after the other."""
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        await call()
        seconds.append(time.perf_counter() - start)
    return seconds
