"""`holdfast service worker`: the product's worker over the coordinator's three unary calls."""

from collections.abc import Mapping
from functools import partial

from holdfast.observe.logs import get_logger
from holdfast.ports import Introduction, WorkApi, WorkSession
from holdfast.topologies.microservices.backend.work_api import UnaryWork
from holdfast.topologies.microservices.services.callers import credential
from holdfast.topologies.microservices.services.environment import WorkerEnvironment
from holdfast.topologies.worker_process import run_worker
from holdfast.worker.config import WorkerConfig
from holdfast.worker.handlers import Handler
from holdfast.worker.runtime import Worker
from holdfast.worker.start_report import declared_by, report_start
from holdfast.worker.worker_name import host_name


async def work(
    environment: WorkerEnvironment,
    handlers: Mapping[str, Handler],
    app_path: str,
    queues: frozenset[str],
    schedules: tuple[str, ...],
) -> Worker:
    """Runs a worker until TERM or INT, and returns it; it is ready once the coordinator has answered."""
    if not environment.token:
        get_logger().warning(
            "unprotected", message="SERVICE_TOKEN is not set: calls between services are not authenticated"
        )
    api = UnaryWork(
        environment.coordinator_address, credential(environment.token), heartbeat_ms=environment.heartbeat_ms
    )
    config = WorkerConfig(
        worker_id=environment.worker_id or host_name(),
        slots=environment.slots,
        queues=queues,
        schedules=schedules,
        app_path=app_path,
    )
    report = partial(report_start, declared_by(None, app_path, handlers.keys()), None)
    return await run_worker(_FirstHeartbeatLog(api), handlers, config, environment.coordinator_address, report)


class _FirstHeartbeatLog:
    """Logs the first heartbeat."""

    def __init__(self, api: WorkApi) -> None:
        self._api = api
        self._is_told = False

    async def open(self, introduction: Introduction) -> WorkSession:
        """Opens a session, which sends a heartbeat."""
        if not self._is_told:
            self._is_told = True
            get_logger().info("first_heartbeat", method="WorkerHeartbeat", worker_id=introduction.worker_id)
        return await self._api.open(introduction)
