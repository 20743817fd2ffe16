"""`ScheduleApi` over a store."""

from holdfast.core.commands import Refusal
from holdfast.core.ticks import preview
from holdfast.ports import ScheduleSpec, ScheduleView
from holdfast.topologies.pipeline.backend.store import Plans


class PipelineSchedules:
    """What is asked of schedules, answered by the store."""

    def __init__(self, plans: Plans) -> None:
        self._plans = plans

    async def set(self, spec: ScheduleSpec) -> ScheduleView:
        """One transaction."""
        return await self._plans.set(spec)

    async def get(self, name: str) -> ScheduleView:
        """As committed."""
        return await self._plans.get(name)

    async def all(self) -> list[ScheduleView]:
        """By name."""
        return await self._plans.all()

    async def delete(self, name: str) -> None:
        """One transaction."""
        await self._plans.delete(name)

    async def pause(self, name: str, *, is_paused: bool) -> ScheduleView:
        """One transaction."""
        return await self._plans.pause(name, is_paused=is_paused)

    async def trigger(self, name: str) -> str:
        """One transaction: the job, and that its schedule made it."""
        return await self._plans.trigger(name)

    async def preview(self, spec: ScheduleSpec, after_ms: int, count: int) -> list[int]:
        """Computed here, by the store's clock; nothing is decided."""
        ticks = preview(spec, await self._plans.now_ms(), after_ms, count)
        if isinstance(ticks, Refusal):
            raise ticks.error()
        return ticks
