"""The cron leader: of many schedulers, one fires ticks, and another one as soon as it does not.

Invariants: what this process believes of its leadership, or of time, decides nothing: the store compares holder, epoch
and lease with its own clock for every tick. So whoever is late, stopped or cut off does no harm, and asks again.
"""

import asyncio
import contextlib
import time
from collections import Counter

from holdfast.errors import FailedPreconditionError, HoldfastError
from holdfast.observe.logs import get_logger
from holdfast.topologies.pipeline.backend.store import Leadership, Plans

#: When whoever leads dies or stands still, another one fires before this is over.
TAKEOVER_MS = 3_000

#: How soon it is asked what is due next, once nothing is.
_AGAIN_S = 0.01


def terms(takeover_ms: int) -> tuple[int, float]:
    """How long a lease lasts and how often it is asked for, in seconds, so that it changes hands within this time.

    The next one asks up to an interval after the lease has run out; a sixth is left for the asking itself.
    """
    return takeover_ms * 2 // 3, takeover_ms / 6 / 1_000


class CronLeader:
    """A task that competes for the leadership, and fires what is due while it leads. No other has the same `holder`."""

    def __init__(self, plans: Plans, holder: str, *, interval_s: float, lease_ms: int) -> None:
        self._plans = plans
        self._holder = holder
        self._interval_s = interval_s
        self._lease_ms = lease_ms
        self._leadership: Leadership | None = None
        self._asked_s = float("-inf")
        self._is_away = False
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        #: How many ticks of each outcome came up here.
        self.ticks: Counter[str] = Counter()

    @property
    def is_leading(self) -> bool:
        """Whether it had the leadership when it last heard of it, and may have it still."""
        return self._leadership is not None and time.monotonic() - self._asked_s < self._lease_ms / 1_000

    @property
    def epoch(self) -> int:
        """Of its leadership; 0: it does not lead."""
        return self._leadership.epoch if self._leadership is not None and self.is_leading else 0

    def start(self) -> None:
        """Competes from now on."""
        self._task = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """Fires no more, and lets another one at once."""
        self._stopping.set()
        if self._task is not None:
            await self._task
            self._task = None
        leadership, self._leadership = self._leadership, None
        if leadership is not None:
            with contextlib.suppress(HoldfastError):  # then the lease runs out
                await self._plans.resign(leadership)

    async def _keep(self) -> None:
        while not self._stopping.is_set():
            pause_s = self._interval_s
            try:
                pause_s = await self._take_part()
                self._is_away = False
            except FailedPreconditionError as error:
                self._lose(error.message)
                pause_s = 0
            except HoldfastError as error:
                self._bear(error)
            except Exception as error:  # noqa: BLE001 - a mistake in the program; schedules must not end in silence
                get_logger().error("bug", message="a tick could not be decided", exc_info=error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)

    async def _take_part(self) -> float:
        """Asks for the leadership when it is time to, and fires what is due if it has it; how long there is to wait."""
        if self._until_asking_s() <= 0:
            await self._compete()
        if self._leadership is None:
            return self._until_asking_s()
        due_ms = await self._plans.next_due_ms()
        if due_ms == 0:
            return await self._fire(self._leadership)
        wait_s = self._until_asking_s()
        return wait_s if due_ms is None else min(wait_s, due_ms / 1_000)

    async def _fire(self, leadership: Leadership) -> float:
        """One tick after the other, until it is time to extend the lease."""
        while self._until_asking_s() > 0 and not self._stopping.is_set():
            outcome = await self._plans.tick(leadership)
            if not outcome:
                return _AGAIN_S
            self.ticks[outcome] += 1
        return 0

    def _until_asking_s(self) -> float:
        return max(0.0, self._asked_s + self._interval_s - time.monotonic())

    async def _compete(self) -> None:
        asked_s = time.monotonic()
        leadership = await self._plans.lead(self._holder, self._lease_ms)
        self._asked_s = asked_s
        if leadership is None:
            self._lose("somebody else has it")
        elif leadership != self._leadership:
            self._leadership = leadership
            get_logger().info("cron_leading", holder=self._holder, epoch=leadership.epoch, message="fires schedules")

    def _lose(self, why: str) -> None:
        if self._leadership is not None:
            epoch, self._leadership = self._leadership.epoch, None
            get_logger().warning("cron_leadership_lost", holder=self._holder, epoch=epoch, message=why)

    def _bear(self, error: HoldfastError) -> None:
        """What is due stays due; said once, not every second of an outage."""
        if not self._is_away:
            self._is_away = True
            get_logger().warning("cron_cannot_fire", holder=self._holder, message=error.message)
