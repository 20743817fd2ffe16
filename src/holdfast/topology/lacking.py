"""What an ensemble does not keep: refused by its name, whoever asks."""

from collections.abc import AsyncIterator

from holdfast.backends.ports import FeedPart, QueueView, ScheduleSpec, ScheduleView, Stats, WorkerView
from holdfast.core.history import Entry
from holdfast.core.model import QueueMode
from holdfast.errors import UnimplementedError

NAME = "zookeeper"


def missing(what: str) -> UnimplementedError:
    """The gateway's sentence, for those who have no gateway."""
    message = f"the {NAME} backend has no {what}; `holdfast up` without --topology has all there is"
    return UnimplementedError(message, reason="CAPABILITY_MISSING")


def _administration() -> UnimplementedError:
    return missing("administration (numbers, queues, workers)")


class NoAdmin:
    """`AdminApi` of those who have none."""

    async def stats(self) -> Stats:
        raise _administration()

    async def queues(self) -> list[QueueView]:
        raise _administration()

    async def set_queue_mode(self, queue: str, mode: QueueMode, reason: str) -> None:
        raise _administration()

    async def purge(self, queue: str, reason: str) -> int:
        raise _administration()

    async def workers(self) -> list[WorkerView]:
        raise _administration()

    async def drain_worker(self, worker_id: str) -> None:
        raise _administration()


class NoFeed:
    """`FeedApi` of those who have none."""

    def feed(self, after: int | None) -> AsyncIterator[FeedPart]:
        raise missing("feed")

    async def history(self, job_id: str) -> list[Entry]:
        raise missing("history")


class NoSchedules:
    """`ScheduleApi` of those who have none."""

    async def set(self, spec: ScheduleSpec) -> ScheduleView:
        raise missing("schedules")

    async def get(self, name: str) -> ScheduleView:
        raise missing("schedules")

    async def all(self) -> list[ScheduleView]:
        raise missing("schedules")

    async def delete(self, name: str) -> None:
        raise missing("schedules")

    async def pause(self, name: str, *, is_paused: bool) -> ScheduleView:
        raise missing("schedules")

    async def trigger(self, name: str) -> str:
        raise missing("schedules")

    async def preview(self, spec: ScheduleSpec, after_ms: int, count: int) -> list[int]:
        raise missing("schedules")
