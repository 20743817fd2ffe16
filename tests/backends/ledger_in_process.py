"""The ledger in the test's own process, on disk or in memory, with a clock that can be moved."""

import asyncio
from pathlib import Path

from holdfast.clock import SystemClock, Uptime
from holdfast.core.capabilities import LEDGER, Capabilities
from holdfast.ports import AdminApi, CapabilityApi, FeedApi, JobApi, ScheduleApi, WorkApi
from holdfast.settings import MEMORY, Settings
from holdfast.testing.conformance.harness import Control, Need, Terms
from holdfast.topologies.embedded.served_ledger import ServedLedger

#: Less than the gap that the coordinator takes for a pause of its process.
_STEP_MS = 240


class MovableClock:
    """The system's clock plus a shift that the test sets."""

    def __init__(self) -> None:
        self._system = SystemClock()
        self.shift_ms = 0

    def wall_ms(self) -> int:
        return self._system.wall_ms() + self.shift_ms

    def steady_ms(self) -> int:
        return self._system.steady_ms() + self.shift_ms

    def uptime(self) -> Uptime | None:
        return None


class LedgerHere:
    """A ledger in this process for one test."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._clock = MovableClock()
        self._serving: ServedLedger
        self._work: WorkApi
        self._settings: Settings

    @property
    def declared(self) -> Capabilities:
        return LEDGER

    @property
    def beyond(self) -> frozenset[Need]:
        return frozenset(Control) - ({Control.RESTART} if self._folder is None else set())

    @property
    def backend(self) -> CapabilityApi:
        return self._serving.ports.backend

    @property
    def jobs(self) -> JobApi:
        return self._serving.ports.jobs

    @property
    def work(self) -> WorkApi:
        return self._work

    @property
    def admin(self) -> AdminApi:
        return self._serving.ports.admin

    @property
    def feed(self) -> FeedApi:
        return self._serving.ports.feed

    @property
    def schedules(self) -> ScheduleApi:
        return self._serving.ports.schedules

    async def start(self, terms: Terms) -> None:
        self._settings = Settings(
            data=MEMORY if self._folder is None else str(self._folder),
            lease_ms=terms.lease_ms,
            worker_timeout_ms=3_600_000,  # workers that a test drives by hand send no heartbeats
        )
        await self._open()

    async def _open(self) -> None:
        self._serving = ServedLedger(self._settings, self._clock)
        if self._folder is None:
            self._serving.open_at_once()
        else:
            await self._serving.open()
        self._work = await self._serving.work()

    async def stop(self) -> None:
        await self._serving.close()

    async def restart(self) -> None:
        await self.stop()
        await self._open()

    async def advance(self, ms: int) -> None:
        while ms > 0:
            step_ms = min(ms, _STEP_MS)
            ms -= step_ms
            self._clock.shift_ms += step_ms
            self._serving.core.coordinator.wake()
            await asyncio.sleep(0)  # lets the coordinator's loop run
            await asyncio.sleep(0)
