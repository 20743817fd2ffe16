"""Waiting for what the roles of a test are about to do."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

#: Only a failing test ever waits this long.
DEADLINE_S = 60.0
_PAUSE_S = 0.005


async def happens(read: Callable[[], Awaitable[T]], is_right: Callable[[T], object] = bool) -> T:
    """What `read` gives once it is right; fails with the last value when that never happens."""
    loop = asyncio.get_running_loop()
    end = loop.time() + DEADLINE_S
    value = await read()
    while not is_right(value):
        assert loop.time() < end, f"it never came; last seen: {value!r}"
        await asyncio.sleep(_PAUSE_S)
        value = await read()
    return value
