"""`ScheduleApi` over a coordinator in this process."""

from collections.abc import Callable
from typing import cast

from holdfast.core import commands
from holdfast.core.commands import Refusal
from holdfast.core.ledger import Ledger
from holdfast.core.model import Now
from holdfast.core.ticks import preview, unknown_schedule
from holdfast.ledger.coordinator import CommandLane, Coordinator
from holdfast.ledger.coordinator_calls import CoordinatorCaller
from holdfast.ledger.views import schedule_view
from holdfast.ports import ScheduleSpec, ScheduleView


class LedgerSchedules:
    """Operations on schedules, on the ledger. `mint` creates the id of one job."""

    def __init__(self, coordinator: Coordinator, mint: Callable[[], str]) -> None:
        self._coordinator = coordinator
        self._caller = CoordinatorCaller(coordinator)
        self._mint = mint

    async def set(self, spec: ScheduleSpec) -> ScheduleView:
        """Creates or replaces a schedule: one event, or none if it is unchanged."""
        await self._caller.call(CommandLane.SUBMIT, commands.SetSchedule(spec))
        return await self.get(spec.name)

    async def get(self, name: str) -> ScheduleView:
        """Returns the schedule at one instant, when that state is durable."""

        def query(ledger: Ledger, _: Now) -> object:
            schedule = ledger.state.schedules.get(name)
            return unknown_schedule(name) if schedule is None else schedule_view(schedule)

        return cast("ScheduleView", await self._caller.read(CommandLane.SUBMIT, query))

    async def all(self) -> list[ScheduleView]:
        """Returns all schedules, by name."""

        def query(ledger: Ledger, _: Now) -> object:
            schedules = ledger.state.schedules
            return [schedule_view(schedules[name]) for name in sorted(schedules)]

        return cast("list[ScheduleView]", await self._caller.read(CommandLane.LIST, query))

    async def delete(self, name: str) -> None:
        """Deletes a schedule: one event."""
        await self._caller.call(CommandLane.SUBMIT, commands.DeleteSchedule(name))

    async def pause(self, name: str, *, is_paused: bool) -> ScheduleView:
        """Pauses or resumes a schedule: one event, or none if it is unchanged."""
        await self._caller.call(CommandLane.SUBMIT, commands.PauseSchedule(name, is_paused))
        return await self.get(name)

    async def trigger(self, name: str) -> str:
        """Creates a job now: one event with the tick and its job."""
        return cast("str", await self._caller.call(CommandLane.SUBMIT, commands.TriggerSchedule(name, self._mint())))

    async def preview(self, spec: ScheduleSpec, after_ms: int, count: int) -> list[int]:
        """Returns the next ticks, computed without a command."""
        ticks = preview(spec, self._coordinator.time.now().log_ms, after_ms, count)
        if isinstance(ticks, Refusal):
            raise ticks.error()
        return ticks
