"""The client's automatic retries, as fixed by the contract.

A call has four attempts in all, with full jitter over 100, 200 and 400 ms. Only the errors in `RETRYABLE` are retried.
A submit is retried only with a job id or a request id, because without one a retry could create a second job.
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
    """Returns the maximum back-off after this attempt, counted from 1."""
    return min(limits.RETRY_FIRST_MS * limits.RETRY_FACTOR ** (attempt - 1), limits.RETRY_MS_MAX)


async def _sleep(delay_ms: float) -> None:
    await asyncio.sleep(delay_ms / 1_000)


class RetryPolicy:
    """Retries calls. `draw(a, b)` returns a random number between the two; tests can replace both functions."""

    def __init__(
        self,
        draw: Callable[[float, float], float] = random.uniform,
        sleep: Callable[[float], Awaitable[None]] = _sleep,
    ) -> None:
        self._draw = draw
        self._sleep = sleep

    async def call(self, attempt_once: Callable[[], Awaitable[T]], *, is_repeatable: bool) -> T:
        """Returns the first successful answer, or raises the error of the last attempt."""
        for attempt in range(1, limits.RETRY_ATTEMPTS):
            try:
                return await attempt_once()
            except HoldfastError as error:
                if not is_repeatable or error.code not in RETRYABLE:
                    raise
            await self._sleep(self._draw(0, ceiling_ms(attempt)))
        return await attempt_once()


class NoRetryPolicy(RetryPolicy):
    """Makes every call once: the caller decides whether to retry, and with which server."""

    async def call(self, attempt_once: Callable[[], Awaitable[T]], *, is_repeatable: bool) -> T:
        """Returns the answer of the only attempt, or raises its error."""
        return await attempt_once()
