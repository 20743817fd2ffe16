"""A client of an ensemble, with no server of ours in between: jobs are read and written, the other ports refuse."""

from collections.abc import AsyncIterator
from typing import Self

from holdfast import __version__
from holdfast.core.capabilities import Capabilities, Capability
from holdfast.core.model import QueueMode
from holdfast.errors import UnimplementedError
from holdfast.ports import FeedPart, QueueView, ScheduleSpec, ScheduleView, Stats, WorkerView
from holdfast.topologies.zookeeper import ZOOKEEPER
from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection
from holdfast.topologies.zookeeper.backend.job_api import NodeJobs


def missing(capability: Capability) -> UnimplementedError:
    """Returns the error for a call that needs a missing capability."""
    return UnimplementedError(ZOOKEEPER.lack(capability), reason="CAPABILITY_MISSING")


class NoAdmin:
    """An `AdminApi` that refuses every call."""

    async def stats(self) -> Stats:
        raise missing(Capability.ADMINISTRATION)

    async def queues(self) -> list[QueueView]:
        raise missing(Capability.ADMINISTRATION)

    async def set_queue_mode(self, queue: str, mode: QueueMode, reason: str) -> None:
        raise missing(Capability.ADMINISTRATION)

    async def purge(self, queue: str, reason: str) -> int:
        raise missing(Capability.ADMINISTRATION)

    async def workers(self) -> list[WorkerView]:
        raise missing(Capability.ADMINISTRATION)

    async def drain_worker(self, worker_id: str) -> None:
        raise missing(Capability.ADMINISTRATION)


class NoFeed:
    """The feed of a `FeedApi`, which refuses every call; for backends with histories only."""

    def feed(self, after: int | None) -> AsyncIterator[FeedPart]:
        raise missing(Capability.FEED)


class NoSchedules:
    """A `ScheduleApi` that refuses every call."""

    async def set(self, spec: ScheduleSpec) -> ScheduleView:
        raise missing(Capability.SCHEDULES)

    async def get(self, name: str) -> ScheduleView:
        raise missing(Capability.SCHEDULES)

    async def all(self) -> list[ScheduleView]:
        raise missing(Capability.SCHEDULES)

    async def delete(self, name: str) -> None:
        raise missing(Capability.SCHEDULES)

    async def pause(self, name: str, *, is_paused: bool) -> ScheduleView:
        raise missing(Capability.SCHEDULES)

    async def trigger(self, name: str) -> str:
        raise missing(Capability.SCHEDULES)

    async def preview(self, spec: ScheduleSpec, after_ms: int, count: int) -> list[int]:
        raise missing(Capability.SCHEDULES)


class EnsembleClient(NodeJobs, NoAdmin, NoFeed):
    """All ports over one session, which ends with the `async with` block."""

    def __init__(self, connection: EnsembleConnection) -> None:
        super().__init__(connection)
        self.schedules = NoSchedules()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the session."""
        await self._connection.close()

    async def capabilities(self) -> Capabilities:
        """Returns the capabilities of every ensemble, without a request."""
        return ZOOKEEPER.served(__version__, has_totals=False)
