"""Statistics of the last minutes, so that a page opened during an incident shows what came before.

It keeps a bounded number of samples, one every few seconds, and none on a server without totals.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import HoldfastError

if TYPE_CHECKING:  # circular import
    from holdfast.server.http.system import StatsResource

EVERY_MS = 5_000
_SAMPLES_MAX = 180


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Counters since the server started, and queued and running jobs, at one instant."""

    at_ms: int
    queued: int
    running: int
    submitted: int
    done: int
    failed: int
    canceled: int
    leases_expired: int
    wait_ms_counts: list[int]
    run_ms_counts: list[int]


class Recent(msgspec.Struct, frozen=True):
    """Samples of the last minutes, oldest first; each count is the number of jobs in one bucket of wait or run time."""

    started_at_ms: int
    every_ms: int
    wait_ms_bounds: list[int]
    run_ms_bounds: list[int]
    samples: list[Sample]


class StatsHistory:
    """Takes samples periodically, and drops old ones."""

    def __init__(self, numbers: Callable[[], Awaitable["StatsResource"]]) -> None:
        self._numbers = numbers
        self._last: StatsResource | None = None
        self._samples: deque[Sample] = deque(maxlen=_SAMPLES_MAX)

    async def run(self) -> None:
        """Runs until it is canceled."""
        while True:
            with suppress(HoldfastError):  # the server is stopping, or the backend is unavailable
                self.keep(await self._numbers())
            await asyncio.sleep(EVERY_MS / 1_000)

    def keep(self, stats: "StatsResource") -> None:
        """Adds a sample, if the server has totals."""
        totals = stats.totals
        if totals is None:
            return
        self._last = stats
        self._samples.append(
            Sample(
                at_ms=stats.now_ms,
                queued=stats.states.get("QUEUED", 0),
                running=stats.states.get("RUNNING", 0),
                submitted=totals.submitted,
                done=totals.finished.get("done", 0),
                failed=totals.finished.get("failed", 0),
                canceled=totals.finished.get("canceled", 0),
                leases_expired=totals.leases_expired,
                wait_ms_counts=totals.wait_ms_counts,
                run_ms_counts=totals.run_ms_counts,
            )
        )

    def recent(self) -> Recent:
        """Returns all samples."""
        if self._last is None or self._last.totals is None:
            return Recent(0, EVERY_MS, [], [], [])
        totals = self._last.totals
        bounds = (totals.wait_ms_bounds, totals.run_ms_bounds)
        return Recent(self._last.started_at_ms, EVERY_MS, *bounds, list(self._samples))
