"""The cron leader: one of the schedulers fires ticks, and another one takes over when it fails.

Invariants: neither this process's view of its leadership nor its clock decides anything: for every tick, the store
checks holder, epoch and lease by its own clock. So a scheduler that is late, stopped or cut off does no harm.
"""

import asyncio
import contextlib
import time
from collections import Counter

from holdfast.errors import FailedPreconditionError, HoldfastError
from holdfast.observe.logs import get_logger
from holdfast.topologies.pipeline.backend.store import Leadership, ScheduleStore

#: When the leader dies or stalls, another scheduler fires within this time.
TAKEOVER_MS = 3_000

#: The pause between the last due tick and the next query.
_AGAIN_S = 0.01


def terms(takeover_ms: int) -> tuple[int, float]:
    """Returns the lease in milliseconds and the interval of requests in seconds for a takeover within this time.

    The next leader requests the lease up to one interval after it has expired; a sixth is left for the request itself.
    """
    return takeover_ms * 2 // 3, takeover_ms / 6 / 1_000


class CronLeader:
    """A task that competes for the leadership, and fires due ticks while it leads. Each one has its own `holder`."""

    def __init__(self, plans: ScheduleStore, holder: str, *, interval_s: float, lease_ms: int) -> None:
        self._plans = plans
        self._holder = holder
        self._interval_s = interval_s
        self._lease_ms = lease_ms
        self._leadership: Leadership | None = None
        self._asked_s = float("-inf")
        self._is_away = False
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        #: The number of ticks that were processed here, by outcome.
        self.ticks: Counter[str] = Counter()

    @property
    def is_leading(self) -> bool:
        """Whether the last request got the leadership, and its lease may still last."""
        return self._leadership is not None and time.monotonic() - self._asked_s < self._lease_ms / 1_000

    @property
    def epoch(self) -> int:
        """The epoch of its leadership; 0 if it does not lead."""
        return self._leadership.epoch if self._leadership is not None and self.is_leading else 0

    def start(self) -> None:
        """Starts to compete for the leadership."""
        self._task = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """Stops firing, and resigns so that another scheduler can take over at once."""
        self._stopping.set()
        if self._task is not None:
            await self._task
            self._task = None
        leadership, self._leadership = self._leadership, None
        if leadership is not None:
            with contextlib.suppress(HoldfastError):  # the lease expires instead
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
            except Exception as error:  # noqa: BLE001 - a bug must not stop all schedules silently
                get_logger().error("bug", message="a tick could not be processed", exc_info=error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)

    async def _take_part(self) -> float:
        """Requests the leadership if it is time to, and fires due ticks while it leads; returns the time to wait."""
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
        """Fires one tick after the other, until it is time to extend the lease."""
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
            self._lose("another scheduler has the leadership")
        elif leadership != self._leadership:
            self._leadership = leadership
            get_logger().info("cron_leading", holder=self._holder, epoch=leadership.epoch, message="fires schedules")

    def _lose(self, why: str) -> None:
        if self._leadership is not None:
            epoch, self._leadership = self._leadership.epoch, None
            get_logger().warning("cron_leadership_lost", holder=self._holder, epoch=epoch, message=why)

    def _bear(self, error: HoldfastError) -> None:
        """Logs the first error of an outage; due ticks stay due."""
        if not self._is_away:
            self._is_away = True
            get_logger().warning("cron_cannot_fire", holder=self._holder, message=error.message)
