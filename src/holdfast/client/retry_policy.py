"""When a client repeats a call by itself: the locked profile.

Four attempts in all, with full jitter over 100, 200 and 400 ms, and only after an answer that says the server could
not. A submit is repeated only under a request id, because without one the repetition would be a second job.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast import limits
from holdfast.errors import Code, HoldfastError

T = TypeVar("T")

RETRYABLE = frozenset({Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.RESOURCE_EXHAUSTED})


def ceiling_ms(attempt: int) -> float:
    """The longest wait after this attempt, counted from 1."""
    return min(limits.RETRY_FIRST_MS * limits.RETRY_FACTOR ** (attempt - 1), limits.RETRY_MS_MAX)


async def _sleep(delay_ms: float) -> None:
    await asyncio.sleep(delay_ms / 1_000)


class Retrying:
    """Repeats calls. `draw(a, b)` gives a random number between the two; both functions can be replaced in tests."""

    def __init__(
        self,
        draw: Callable[[float, float], float] = random.uniform,
        sleep: Callable[[float], Awaitable[None]] = _sleep,
    ) -> None:
        self._draw = draw
        self._sleep = sleep

    async def call(self, attempt_once: Callable[[], Awaitable[T]], *, is_repeatable: bool) -> T:
        """The answer of the first attempt that has one; the error of the last."""
        for attempt in range(1, limits.RETRY_ATTEMPTS):
            try:
                return await attempt_once()
            except HoldfastError as error:
                if not is_repeatable or error.code not in RETRYABLE:
                    raise
            await self._sleep(self._draw(0, ceiling_ms(attempt)))
        return await attempt_once()


class Once(Retrying):
    """Every call once: whoever made it decides on the next try, and of whom."""

    async def call(self, attempt_once: Callable[[], Awaitable[T]], *, is_repeatable: bool) -> T:
        """The answer or the error of the only attempt."""
        return await attempt_once()
