"""`ScheduleApi` of a remote server, over the wire."""

from typing import TypeVar

from holdfast import limits
from holdfast.client.retry_policy import RetryPolicy
from holdfast.client.transport import Transport
from holdfast.ports import ScheduleSpec, ScheduleView
from holdfast.wire import methods
from holdfast.wire.methods import NOTHING, OneSchedule, WireMethod

Q = TypeVar("Q")
R = TypeVar("R")

_CHANGE_S = limits.DEADLINE_MS_SUBMIT / 1_000
_LOOK_S = limits.DEADLINE_MS_LIST / 1_000


class RemoteSchedules:
    """The schedules of one server."""

    def __init__(self, transport: Transport, retry_policy: RetryPolicy) -> None:
        self._transport = transport
        self._retry_policy = retry_policy

    async def set(self, spec: ScheduleSpec) -> ScheduleView:
        """Creates or replaces a schedule."""
        return await self._call(methods.SET_SCHEDULE, methods.ScheduleChange(spec), _CHANGE_S)

    async def get(self, name: str) -> ScheduleView:
        """Returns one schedule."""
        return await self._call(methods.GET_SCHEDULE, OneSchedule(name), _LOOK_S)

    async def all(self) -> list[ScheduleView]:
        """Returns every schedule, by name."""
        return await self._call(methods.SCHEDULES, NOTHING, _LOOK_S)

    async def delete(self, name: str) -> None:
        """Deletes a schedule. Not retried: after a lost answer the second try would find no schedule."""
        await self._call(methods.DELETE_SCHEDULE, OneSchedule(name), _CHANGE_S, is_repeatable=False)

    async def pause(self, name: str, *, is_paused: bool) -> ScheduleView:
        """Pauses or resumes a schedule."""
        request = methods.SchedulePause(name, is_paused)
        return await self._call(methods.PAUSE_SCHEDULE, request, _CHANGE_S)

    async def trigger(self, name: str) -> str:
        """Creates a job now and returns its id. Not retried: that could create a second job."""
        return await self._call(methods.TRIGGER_SCHEDULE, OneSchedule(name), _CHANGE_S, is_repeatable=False)

    async def preview(self, spec: ScheduleSpec, after_ms: int, count: int) -> list[int]:
        """Returns the next ticks."""
        request = methods.SchedulePreview(spec, after_ms, count)
        return await self._call(methods.PREVIEW_SCHEDULE, request, _LOOK_S)

    async def _call(self, method: WireMethod[Q, R], request: Q, deadline_s: float, *, is_repeatable: bool = True) -> R:
        return await self._retry_policy.call(
            lambda: self._transport.call(method, request, deadline_s), is_repeatable=is_repeatable
        )
