"""`ScheduleApi` over several nodes: a schedule is kept by the node that owns its name, and its jobs are there."""

from holdfast.client.node_set import NodeSet
from holdfast.client.schedules import RemoteSchedules
from holdfast.ports import ScheduleSpec, ScheduleView


class RoutedSchedules:
    """Schedules of several nodes."""

    def __init__(self, nodes: NodeSet) -> None:
        self._nodes = nodes

    def _owner(self, name: str) -> RemoteSchedules:
        return self._nodes.owner(name).jobs.schedules

    async def set(self, spec: ScheduleSpec) -> ScheduleView:
        """Makes or replaces the schedule of this name."""
        return await self._owner(spec.name).set(spec)

    async def get(self, name: str) -> ScheduleView:
        """`NotFoundError` if there is none."""
        return await self._owner(name).get(name)

    async def all(self) -> list[ScheduleView]:
        """Those of all nodes, by name."""
        answers = await self._nodes.all(lambda node: node.jobs.schedules.all())
        return sorted((view for answer in answers for view in answer), key=lambda view: view.spec.name)

    async def delete(self, name: str) -> None:
        """Jobs that it made stay."""
        await self._owner(name).delete(name)

    async def pause(self, name: str, *, is_paused: bool) -> ScheduleView:
        """Stops or resumes it."""
        return await self._owner(name).pause(name, is_paused=is_paused)

    async def trigger(self, name: str) -> str:
        """The id of a job made now."""
        return await self._owner(name).trigger(name)

    async def preview(self, spec: ScheduleSpec, after_ms: int, count: int) -> list[int]:
        """The next ticks."""
        return await self._owner(spec.name).preview(spec, after_ms, count)
