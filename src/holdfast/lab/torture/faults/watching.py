"""Looking on until something has come to be so: processes, roads and disks tell nobody."""

import asyncio
from collections.abc import Callable

from holdfast.lab.torture.ports import NotNowError

_LOOK_S = 0.01
#: How much longer than it was drawn to last a fault waits for somebody whom it harms.
FELT_S = 5.0


async def until(is_so: Callable[[], bool], within_s: float) -> bool:
    """Whether it came to be so in time."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within_s
    while not is_so():
        if loop.time() >= end:
            return False
        await asyncio.sleep(_LOOK_S)
    return True


async def felt(count: Callable[[], int], before: int, seconds: float, whom: str, longer_s: float | None = None) -> None:
    """Lets a fault last, and longer if nobody has felt it by then; `NotNowError` if nobody does."""
    await asyncio.sleep(seconds)
    if not await until(lambda: count() > before, FELT_S if longer_s is None else longer_s):
        raise NotNowError(f"{whom}: nobody has felt it")
