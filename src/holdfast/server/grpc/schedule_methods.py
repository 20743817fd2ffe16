"""Methods of `holdfast.v1.ScheduleService`."""

from holdfast import limits
from holdfast.core.capabilities import Capability
from holdfast.ports import ScheduleApi, ScheduleSpec, ScheduleView
from holdfast.proto import holdfast_pb2 as pb
from holdfast.server.backend import Backend
from holdfast.server.grpc.requests import template_of
from holdfast.server.grpc.responses import template_message
from holdfast.server.request_checks import checked_name


class ScheduleCalls:
    """The operations on schedules."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def _schedules(self) -> ScheduleApi:
        return self._backend.capability(self._backend.schedules, Capability.SCHEDULES)

    async def set(self, request: pb.ScheduleSpec) -> pb.Schedule:
        """Creates or replaces a schedule."""
        return schedule_message(await self._schedules.set(spec_of(request)))

    async def get(self, request: pb.GetScheduleRequest) -> pb.Schedule:
        """Returns one schedule."""
        return schedule_message(await self._schedules.get(_name(request.name)))

    async def all(self, request: pb.ListSchedulesRequest) -> pb.ListSchedulesResponse:
        """Returns all schedules, by name."""
        return pb.ListSchedulesResponse(schedules=map(schedule_message, await self._schedules.all()))

    async def delete(self, request: pb.DeleteScheduleRequest) -> pb.DeleteScheduleResponse:
        """Deletes a schedule."""
        await self._schedules.delete(_name(request.name))
        return pb.DeleteScheduleResponse()

    async def pause(self, request: pb.PauseScheduleRequest) -> pb.Schedule:
        """Pauses or resumes a schedule."""
        return schedule_message(await self._schedules.pause(_name(request.name), is_paused=request.is_paused))

    async def trigger(self, request: pb.TriggerScheduleRequest) -> pb.TriggerScheduleResponse:
        """Creates a job now."""
        return pb.TriggerScheduleResponse(job_id=await self._schedules.trigger(_name(request.name)))

    async def preview(self, request: pb.PreviewScheduleRequest) -> pb.PreviewScheduleResponse:
        """Returns the next ticks."""
        ticks = await self._schedules.preview(spec_of(request.spec), request.after_ms, request.count)
        return pb.PreviewScheduleResponse(tick_ms=ticks)


def _name(name: str) -> str:
    return checked_name("name", name, reason="SCHEDULE_NAME_INVALID")


def spec_of(spec: pb.ScheduleSpec) -> ScheduleSpec:
    """Converts a message to a schedule; absent fields get their defaults."""
    return ScheduleSpec(
        spec.name,
        template_of(spec.template),
        spec.payload,
        spec.cron,
        spec.every_ms,
        spec.at_ms,
        spec.timezone or "UTC",
        spec.catch_up or "none",
        spec.catch_up_window_ms or limits.CATCH_UP_WINDOW_MS,
        spec.overlap or "allow",
        spec.jitter_ms,
        tuple(sorted(spec.labels.items())),
    )


def schedule_message(view: ScheduleView) -> pb.Schedule:
    """Converts a schedule to a message, with every field set."""
    spec = view.spec
    return pb.Schedule(
        spec=pb.ScheduleSpec(
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
        ),
        is_paused=view.is_paused,
        created_at_ms=view.created_ms,
        next_at_ms=view.next_ms,
        last_tick_ms=view.last_tick_ms,
        last_job_id=view.last_job_id,
        fired=view.fired,
        skipped=view.skipped,
        missed=view.missed,
    )
