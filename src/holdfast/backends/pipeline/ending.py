"""Ending loops that talk to the store: between two calls, never within one, whose connection would be lost."""

import asyncio
from collections.abc import Collection
from contextlib import suppress


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


async def ended(tasks: Collection[asyncio.Task[None]]) -> None:
    """Waits for loops that were told to end: every call of the store has its deadline."""
    if tasks:
        await asyncio.wait(tasks)
