"""Loops that a process does its work in.

Invariants: they end between two calls of the store, never within one, whose connection would be lost; a mistake in the
program does not end them, because nobody would notice.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from holdfast.observe.logs import get_logger

#: How long a loop rests after a mistake in the program.
_AGAIN_S = 1.0


class Ending:
    """Whether a loop should end; nobody sleeps past that."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def is_on(self) -> bool:
        """Whether it should."""
        return self._event.is_set()

    def begin(self) -> None:
        """It should, from now on."""
        self._event.set()

    async def pause(self, seconds: float) -> None:
        """Sleeps for so long, or until it should end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()


async def going_on(loop: Callable[[], Awaitable[None]]) -> None:
    """Runs a loop to its end; after a mistake in the program, which is told, it begins anew."""
    while True:
        try:
            return await loop()
        except Exception as error:  # noqa: BLE001 - a process without its loop would live on in silence
            get_logger().error("bug", message="a loop of this process broke, and begins anew", exc_info=error)
        await asyncio.sleep(_AGAIN_S)


async def ended(tasks: Collection[asyncio.Task[None]]) -> None:
    """Waits for loops that were told to end: every call of the store has its deadline."""
    if tasks:
        await asyncio.wait(tasks)


async def canceled(*tasks: asyncio.Task[None] | None) -> None:
    """Cancel those tasks that were started, and wait until they have ended."""
    started = [task for task in tasks if task is not None]
    for task in started:
        task.cancel()
    await ended(started)
