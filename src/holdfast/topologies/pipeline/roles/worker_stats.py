"""What a worker process of the pipeline answers: what it does, in numbers."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from prometheus_client.core import CounterMetricFamily, Metric

from holdfast.server.http.request import Answer, Asked, answer
from holdfast.server.http.routing import Route
from holdfast.topologies.pipeline.backend.work_stats import WorkStats
from holdfast.topologies.pipeline.roles.role_health import RoleHealth, get

_COUNTERS = {
    "tickets": "Tickets that came.",
    "started": "Jobs that were started by them.",
    "dropped": "Tickets that were of no use: their jobs were canceled, or somebody else's.",
    "reported": "Outcomes that counted.",
    "refused": "Outcomes that came too late.",
}


def worker_routes(stats: WorkStats, more: Callable[[], Mapping[str, Any]] = dict) -> list[Route]:
    """The rows of the table; `more` is what the process around it knows beside that."""

    async def show(_asked: Asked) -> Answer:
        return answer({**asdict(stats), **more()})

    return [get("/worker/stats", show, "The worker in numbers")]


def worker_vitals(stats: WorkStats, is_ready: Callable[[], bool]) -> RoleHealth:
    """What it says of itself."""

    def families() -> Iterator[Metric]:
        for name, sentence in _COUNTERS.items():
            yield CounterMetricFamily(f"holdfast_worker_{name}", sentence, value=getattr(stats, name))

    return RoleHealth("worker", is_ready=is_ready, families=families)
