"""Polling for conditions: processes, proxies and disks send no notifications."""

import asyncio
from collections.abc import Callable

from holdfast_lab.torture.ports import NotNowError

_LOOK_S = 0.01
#: How long after its duration a fault waits for an effect.
FELT_S = 5.0


async def until(is_so: Callable[[], bool], within_s: float) -> bool:
    """Waits until the condition holds; returns whether it does in time."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within_s
    while not is_so():
        if loop.time() >= end:
            return False
        await asyncio.sleep(_LOOK_S)
    return True


async def felt(count: Callable[[], int], before: int, seconds: float, whom: str, longer_s: float | None = None) -> None:
    """Waits for the duration of a fault, and longer if it had no effect by then; `NotNowError` if it has none."""
    await asyncio.sleep(seconds)
    if not await until(lambda: count() > before, FELT_S if longer_s is None else longer_s):
        raise NotNowError(f"{whom}: no effect")
