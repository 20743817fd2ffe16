"""`ScheduleApi` of a remote server, over any carrier."""

from google.protobuf.message import Message

from holdfast import limits
from holdfast.client.retry_policy import RetryPolicy
from holdfast.ports import ScheduleSpec, ScheduleView
from holdfast.proto import holdfast_pb2 as pb
from tests.grpc_v1.transport import Carrier, Response
from tests.grpc_v1.views import made, template_message, template_of

_CHANGE_S = limits.DEADLINE_MS_SUBMIT / 1_000
_LOOK_S = limits.DEADLINE_MS_LIST / 1_000


class RemoteSchedules:
    """The schedules of one server."""

    def __init__(self, carrier: Carrier, retry_policy: RetryPolicy) -> None:
        self._carrier = carrier
        self._retrying = retry_policy

    async def set(self, spec: ScheduleSpec) -> ScheduleView:
        """Creates or replaces a schedule."""
        return _view(await self._call("SetSchedule", _message(spec), pb.Schedule, _CHANGE_S))

    async def get(self, name: str) -> ScheduleView:
        """Returns one schedule."""
        return _view(await self._call("GetSchedule", made(pb.GetScheduleRequest, name=name), pb.Schedule, _LOOK_S))

    async def all(self) -> list[ScheduleView]:
        """Returns every schedule, by name."""
        answer = await self._call("ListSchedules", pb.ListSchedulesRequest(), pb.ListSchedulesResponse, _LOOK_S)
        return [_view(schedule) for schedule in answer.schedules]

    async def delete(self, name: str) -> None:
        """Deletes a schedule. Not retried: after a lost answer the second try would find no schedule."""
        request = made(pb.DeleteScheduleRequest, name=name)
        await self._call("DeleteSchedule", request, pb.DeleteScheduleResponse, _CHANGE_S, is_repeatable=False)

    async def pause(self, name: str, *, is_paused: bool) -> ScheduleView:
        """Pauses or resumes a schedule."""
        request = made(pb.PauseScheduleRequest, name=name, is_paused=is_paused)
        return _view(await self._call("PauseSchedule", request, pb.Schedule, _CHANGE_S))

    async def trigger(self, name: str) -> str:
        """Creates a job now and returns its id. Not retried: that could create a second job."""
        request, response = made(pb.TriggerScheduleRequest, name=name), pb.TriggerScheduleResponse
        return (await self._call("TriggerSchedule", request, response, _CHANGE_S, is_repeatable=False)).job_id

    async def preview(self, spec: ScheduleSpec, after_ms: int, count: int) -> list[int]:
        """Returns the next ticks."""
        request = made(pb.PreviewScheduleRequest, spec=_message(spec), after_ms=after_ms, count=count)
        return list((await self._call("PreviewSchedule", request, pb.PreviewScheduleResponse, _LOOK_S)).tick_ms)

    async def _call(
        self,
        method: str,
        request: Message,
        response: type[Response],
        deadline_s: float,
        *,
        is_repeatable: bool = True,
    ) -> Response:
        async def once() -> Response:
            return await self._carrier.call(f"ScheduleService/{method}", request, response, deadline_s)

        return await self._retrying.call(once, is_repeatable=is_repeatable)


def _message(spec: ScheduleSpec) -> pb.ScheduleSpec:
    return made(
        pb.ScheduleSpec,
        name=spec.name,
        template=template_message(spec.template),
        payload=spec.payload,
        cron=spec.cron,
        every_ms=spec.every_ms,
        at_ms=spec.at_ms,
        timezone=spec.timezone,
        catch_up=spec.catch_up,
        catch_up_window_ms=spec.catch_up_window_ms,
        overlap=spec.overlap,
        jitter_ms=spec.jitter_ms,
        labels=dict(spec.labels),
    )


def _view(schedule: pb.Schedule) -> ScheduleView:
    spec = schedule.spec
    return ScheduleView(
        ScheduleSpec(
            spec.name,
            template_of(spec.template, simulated=False),
            spec.payload,
            spec.cron,
            spec.every_ms,
            spec.at_ms,
            spec.timezone,
            spec.catch_up,
            spec.catch_up_window_ms,
            spec.overlap,
            spec.jitter_ms,
            tuple(sorted(spec.labels.items())),
        ),
        schedule.is_paused,
        schedule.created_at_ms,
        schedule.next_at_ms,
        schedule.last_tick_ms,
        schedule.last_job_id,
        schedule.fired,
        schedule.skipped,
        schedule.missed,
    )
