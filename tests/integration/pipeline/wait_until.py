"""Waiting for a condition that the roles of a test bring about."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

#: Only a failing test waits this long.
DEADLINE_S = 60.0
_PAUSE_S = 0.005


async def happens(read: Callable[[], Awaitable[T]], is_right: Callable[[T], object] = bool) -> T:
    """Repeats `read` until its value is right and returns it; fails with the last value at the deadline."""
    loop = asyncio.get_running_loop()
    end = loop.time() + DEADLINE_S
    value = await read()
    while not is_right(value):
        assert loop.time() < end, f"waited {DEADLINE_S} s for a value; last seen: {value!r}"
        await asyncio.sleep(_PAUSE_S)
        value = await read()
    return value
