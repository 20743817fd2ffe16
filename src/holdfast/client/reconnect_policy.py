"""Retries of a call while the server is being replaced.

No server answers while a directory passes from one process to another. Calls wait for the next server, up to
`PATIENCE_S`. A temporary refusal, such as an overload, is retried as often as the client's retry policy says.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast import limits
from holdfast.client.retry_policy import RETRYABLE, ceiling_ms
from holdfast.errors import HoldfastError, UnavailableError

T = TypeVar("T")

#: How long calls wait for a server before they fail.
PATIENCE_S = 30.0
#: An attempt that lasted longer than this had reached a server, so the wait starts again.
_ANSWERED_S = 1.0
_PAUSE_MS_MAX = 200


class ReconnectPolicy:
    """The retry state of one call: decides after each failure whether to retry, and pauses first.

    `answered_s` must be longer than it takes to detect that no server answers.
    """

    def __init__(self, answered_s: float = _ANSWERED_S) -> None:
        self._answered_s = answered_s
        self._started_s = time.monotonic()
        self._since_s: float | None = None
        self._tries = 0

    def begin(self) -> None:
        """Marks the start of an attempt."""
        self._started_s = time.monotonic()

    async def bear(self, error: HoldfastError) -> None:
        """Returns after a pause if the call should be tried again; raises the error if not."""
        if error.code not in RETRYABLE:
            raise error
        now_s = time.monotonic()
        if self._since_s is None or now_s - self._started_s > self._answered_s:
            self._since_s, self._tries = self._started_s if self._since_s is None else now_s, 0
        self._tries += 1
        is_gone = isinstance(error, UnavailableError)
        if now_s - self._since_s > PATIENCE_S or (not is_gone and self._tries >= limits.RETRY_ATTEMPTS):
            raise error
        # The first retry is immediate: the next server may be there already.
        ceiling = min(ceiling_ms(self._tries), _PAUSE_MS_MAX) if self._tries > 1 else 0
        await asyncio.sleep(random.uniform(0, ceiling) / 1_000)


async def patiently(once: Callable[[], Awaitable[T]], reconnect_policy: ReconnectPolicy | None = None) -> T:
    """Repeats a call until it succeeds or the patience ends."""
    reconnect_policy = reconnect_policy or ReconnectPolicy()
    while True:
        reconnect_policy.begin()
        try:
            return await once()
        except HoldfastError as error:
            await reconnect_policy.bear(error)
