"""`ScheduleApi` over a store."""

from itertools import islice

from holdfast import limits
from holdfast.backends.pipeline.store import Plans
from holdfast.backends.ports import ScheduleSpec, ScheduleView
from holdfast.core.schedule_checks import check_spec
from holdfast.core.ticks import ticks_after
from holdfast.errors import InvalidArgumentError


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
        if not 0 < count <= limits.PREVIEW_TICKS_MAX:
            message = f"expected the number of ticks to be from 1 to {limits.PREVIEW_TICKS_MAX}, got {count}"
            raise InvalidArgumentError(message, reason="COUNT_INVALID")
        now_ms = await self._plans.now_ms()
        refusal = check_spec(spec, now_ms)
        if refusal is not None:
            raise refusal.error()
        return list(islice(ticks_after(spec, now_ms, after_ms or now_ms), count))
