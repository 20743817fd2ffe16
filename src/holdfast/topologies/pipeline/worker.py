"""`holdfast pipeline worker`: a worker that takes jobs from the queue processes that its coordinator assigns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Any

import msgspec
from prometheus_client.core import CounterMetricFamily, Metric

from holdfast.observe.log_setup import ByteStream, line_writer
from holdfast.observe.transitions import transition_lines
from holdfast.server.http.request import AdmittedRequest, HttpResponse, answer
from holdfast.server.http.routing import Route
from holdfast.settings import Settings
from holdfast.topologies.pipeline.backend.admin_api import PipelineAdmin
from holdfast.topologies.pipeline.backend.http_client import RoleConnections
from holdfast.topologies.pipeline.backend.work_api import PipelineWork
from holdfast.topologies.pipeline.backend.work_stats import WorkConfig, WorkStats
from holdfast.topologies.pipeline.postgres.database import open_store
from holdfast.topologies.pipeline.process import check_protection
from holdfast.topologies.pipeline.roles.callers import Credentials
from holdfast.topologies.pipeline.roles.role_health import RoleHealth, get
from holdfast.topologies.pipeline.roles.role_server import RoleServer
from holdfast.topologies.worker_process import run_worker
from holdfast.worker.config import WorkerConfig
from holdfast.worker.handlers import Handler
from holdfast.worker.runtime import Worker
from holdfast.worker.start_report import AppDeclarations, BackendReads, report_start
from holdfast.worker.worker_name import host_name

_COUNTERS = {
    "tickets": "Tickets that were received.",
    "started": "Jobs that were started by tickets.",
    "dropped": "Tickets that started no job: it was canceled, or another worker had started it.",
    "reported": "Outcomes that were accepted.",
    "refused": "Outcomes that were refused.",
}


class WorkerFacts:
    """The configuration and the state of the worker, for `/worker/stats`."""

    def __init__(self, config: WorkerConfig, types: Sequence[str]) -> None:
        self._config = config
        self._types = types
        self._worker: Worker | None = None

    @property
    def is_attached(self) -> bool:
        """Whether the worker takes jobs."""
        return self._worker is not None and self._worker.attached.is_set()

    def see(self, worker: Worker) -> None:
        """Sets the worker to report on."""
        self._worker = worker

    def words(self) -> Mapping[str, Any]:
        """Returns the id, the types and the counters of the worker."""
        config, worker = self._config, self._worker
        done = {} if worker is None else {"running": worker.running, **msgspec.structs.asdict(worker.tally)}
        return {
            "worker_id": config.worker_id,
            "concurrency": config.slots,
            "serves": sorted(config.queues) or "all queues",
            "types": self._types,
            "attached": self.is_attached,
            **done,
        }


class WorkerAddresses(msgspec.Struct, frozen=True):
    """The port of a worker, the address of its coordinator, and its credentials."""

    port: int
    coordinator: str
    credentials: Credentials


async def work(
    settings: Settings,
    place: WorkerAddresses,
    handlers: Mapping[str, Handler],
    queues: frozenset[str],
    declared: AppDeclarations,
    log_stream: ByteStream,
) -> Worker:
    """Runs a worker until TERM or INT; it is ready once the database and the coordinator have answered."""
    check_protection(settings, place.credentials)
    config = WorkerConfig(
        worker_id=settings.worker_id or f"{host_name()}-{place.port}",
        slots=settings.slots,
        queues=queues,
        app_path=settings.app,
    )
    told = WorkerFacts(config, sorted(handlers))
    async with AsyncExitStack() as closing:
        log = transition_lines(line_writer(settings.log_format, log_stream), "worker", settings.log_level)
        store = await open_store(settings.database, name=f"holdfast worker {config.worker_id}", log=log)
        closing.push_async_callback(store.close)
        lines = RoleConnections(token=place.credentials.token)
        closing.push_async_callback(lines.close)
        times = WorkConfig(
            coordinator=place.coordinator, lease_ms=settings.lease_ms, heartbeat_ms=settings.heartbeat_ms
        )
        api = PipelineWork(store.leases, lines, times)
        routes = worker_routes(api.stats, told.words)
        server = RoleServer(routes, worker_vitals(api.stats, lambda: told.is_attached), place.credentials.hashes)
        address = await server.start(settings.host, place.port)
        closing.push_async_callback(server.stop)

        async def prepare() -> None:
            schedules, admin = store.schedules, PipelineAdmin(store)
            for spec in declared.schedules:
                await schedules.set(spec)
            await report_start(declared, BackendReads(admin.queues, admin.workers, schedules.all))

        return await run_worker(
            api, handlers, config, place.coordinator, prepare, seen=told.see, more={"http": address}
        )


def worker_routes(stats: WorkStats, more: Callable[[], Mapping[str, Any]] = dict) -> list[Route]:
    """Returns the routes of a worker; `more` returns additional fields for its statistics."""

    async def show(_asked: AdmittedRequest) -> HttpResponse:
        return answer({**asdict(stats), **more()})

    return [get("/worker/stats", show, "Statistics of the worker")]


def worker_vitals(stats: WorkStats, is_ready: Callable[[], bool]) -> RoleHealth:
    """Returns the health and the metrics of a worker."""

    def families() -> Iterator[Metric]:
        for name, sentence in _COUNTERS.items():
            yield CounterMetricFamily(f"holdfast_worker_{name}", sentence, value=getattr(stats, name))

    return RoleHealth("worker", is_ready=is_ready, families=families)
