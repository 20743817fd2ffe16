"""The background loops of a process.

Invariants: a loop ends between two calls of the store, never within one, which would lose its connection; a bug does
not end a loop, because that would go unnoticed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from holdfast.observe.logs import get_logger

#: The pause of a loop after a bug.
_AGAIN_S = 1.0


class StopSignal:
    """The signal that a loop should end; it interrupts pauses."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def is_on(self) -> bool:
        """Whether the loop should end."""
        return self._event.is_set()

    def begin(self) -> None:
        """Requests the end."""
        self._event.set()

    async def pause(self, seconds: float) -> None:
        """Sleeps for this time, or until the end is requested."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()


async def going_on(loop: Callable[[], Awaitable[None]]) -> None:
    """Runs a loop to its end; logs an unexpected error, and starts the loop again."""
    while True:
        try:
            return await loop()
        except Exception as error:  # noqa: BLE001 - without its loop the process would do nothing, unnoticed
            get_logger().error("bug", message="a loop of this process failed and is restarted", exc_info=error)
        await asyncio.sleep(_AGAIN_S)


async def ended(tasks: Collection[asyncio.Task[None]]) -> None:
    """Waits for loops whose end was requested; this is short, because every call of the store has a deadline."""
    if tasks:
        await asyncio.wait(tasks)


async def canceled(*tasks: asyncio.Task[None] | None) -> None:
    """Cancels the tasks that were started, and waits until they have ended."""
    started = [task for task in tasks if task is not None]
    for task in started:
        task.cancel()
    await ended(started)
