"""The roles of the pipeline in the test's own process, over real HTTP and a real store, with short intervals."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self

from holdfast.core.lifecycle import TERMINAL
from holdfast.core.model import Template
from holdfast.errors import UnavailableError
from holdfast.ports import Assignment, JobDraft, JobView
from holdfast.topologies.pipeline.backend.work_api import PipelineWork
from holdfast.topologies.pipeline.backend.work_stats import WorkConfig
from holdfast.topologies.pipeline.postgres.database import PostgresStore
from holdfast.topologies.pipeline.roles.coordinator import CoordinatorConfig, PipelineCoordinator
from holdfast.topologies.pipeline.roles.exchange import ExchangeConfig, ExchangeRole
from holdfast.topologies.pipeline.roles.exchange_clients import ExchangeClients
from holdfast.topologies.pipeline.roles.queue import QueueConfig, QueueRole
from holdfast.topologies.pipeline.roles.role_server import RoleServer
from holdfast.topologies.pipeline.roles.watcher import WatcherConfig, WatcherRole
from holdfast.topologies.pipeline.roles.worker_table import QueueList
from holdfast.worker.config import WorkerConfig
from holdfast.worker.handlers import Handler
from holdfast.worker.runtime import Worker
from tests.e2e.fleet import stable_port
from tests.integration.pipeline.long_timeouts import PatientLines
from tests.integration.pipeline.wait_until import happens

#: Short enough for a test to wait for, and longer than a pause of a busy machine.
VISIBILITY_MS = 1_500


class QueueHere:
    """One queue process on a fixed port; it can be killed and started again with an empty shelf."""

    def __init__(self, kind: str, lane_max: int) -> None:
        self._config = QueueConfig(kind=kind, lane_max=lane_max)
        self._server: RoleServer | None = None
        self.address = f"127.0.0.1:{stable_port()}"
        self.role = QueueRole(self._config)

    async def start(self) -> None:
        self.role = QueueRole(self._config)
        self._server = RoleServer(self.role.routes(), self.role.vitals())
        await self._server.start("127.0.0.1", int(self.address.rpartition(":")[2]))

    async def kill(self) -> None:
        """Stops the server; everything on the shelf is lost."""
        if self._server is not None:
            await self._server.stop(0)
            self._server = None


class PipelineHere:
    """Watchers, exchanges, queue processes and a coordinator around one store."""

    def __init__(self, store: PostgresStore, *, normal: int = 2, high: int = 1, lane_max: int = 100) -> None:
        self.store = store
        self.lines = PatientLines()
        self.normal = [QueueHere("normal", lane_max) for _ in range(normal)]
        self.high = [QueueHere("high", lane_max) for _ in range(high)]
        self.watchers: list[WatcherRole] = []
        self.exchanges: list[RoleServer] = []
        self.exchange_addresses: list[str] = []
        self.coordinator: PipelineCoordinator
        self.coordinator_address = f"127.0.0.1:{stable_port()}"
        self.breadth = 4
        #: Long, so that no worker is considered lost when the machine pauses.
        self.heartbeat_ms = 10_000
        self.missed_max = 3
        self._coordinator_server: RoleServer | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for queue in (*self.normal, *self.high):
            await queue.start()
            self._stack.push_async_callback(queue.kill)
        for _ in range(2):
            await self.add_exchange()
        await self.start_coordinator()
        self._stack.push_async_callback(self.stop_coordinator)
        return self

    async def __aexit__(self, *_: object) -> None:
        for watcher in self.watchers:
            await watcher.stop()
        await self._stack.aclose()
        await self.lines.close()

    async def add_exchange(self) -> None:
        config = ExchangeConfig(
            normal=tuple(queue.address for queue in self.normal), high=tuple(queue.address for queue in self.high)
        )
        role = ExchangeRole(config, self.lines)
        server = RoleServer(role.routes(), role.vitals())
        self.exchange_addresses.append(await server.start("127.0.0.1", 0))
        self.exchanges.append(server)
        self._stack.push_async_callback(server.stop, 0)

    def add_watcher(self, **config: Any) -> WatcherRole:  # noqa: ANN401 - as WatcherConfig has
        chosen = WatcherConfig(**{"poll_ms": 200, "visibility_ms": VISIBILITY_MS, **config})
        watcher = WatcherRole(
            chosen, self.store.claims, self.store.workers, ExchangeClients(self.exchange_addresses, self.lines)
        )
        self.watchers.append(watcher)
        watcher.start()
        return watcher

    async def start_coordinator(self) -> None:
        queues = QueueList(
            normal=tuple(queue.address for queue in self.normal),
            high=tuple(queue.address for queue in self.high),
            breadth=self.breadth,
        )
        self.coordinator = PipelineCoordinator(
            CoordinatorConfig(queues=queues, heartbeat_ms=self.heartbeat_ms, missed_max=self.missed_max),
            self.store.workers,
        )
        self._coordinator_server = RoleServer(self.coordinator.routes(), self.coordinator.vitals())
        await self._coordinator_server.start("127.0.0.1", int(self.coordinator_address.rpartition(":")[2]))
        self.coordinator.start()

    async def stop_coordinator(self) -> None:
        if self._coordinator_server is not None:
            server, self._coordinator_server = self._coordinator_server, None
            await server.stop(0)
            await self.coordinator.stop()

    def drop(self, path: str) -> None:
        """Aborts the coordinator's connections on which a request to this path is open."""
        assert self._coordinator_server is not None
        assert self._coordinator_server._http is not None
        for connection in tuple(self._coordinator_server._http._shared.connections):
            if any(exchange.head.path == path for exchange in connection._exchanges):
                connection.abort()

    def work(self, lease_ms: int = 60_000) -> PipelineWork:
        config = WorkConfig(coordinator=self.coordinator_address, lease_ms=lease_ms, heartbeat_ms=100)
        return PipelineWork(self.store.leases, self.lines, config)

    def worker(self, worker_id: str, handlers: Mapping[str, Handler], slots: int = 2) -> "WorkerHere":
        return WorkerHere(Worker(self.work(), handlers, WorkerConfig(worker_id=worker_id, slots=slots)))

    async def submit(self, count: int = 1, template: Template | None = None) -> list[str]:
        drafts = [JobDraft(payload=str(number).encode()) for number in range(count)]
        return (await self.store.rows.insert([template or Template("echo")], drafts)).job_ids

    async def ended(self, job_ids: Sequence[str]) -> list[JobView]:
        """Waits until all jobs have ended and returns them."""

        async def views() -> list[JobView]:
            try:
                return [await self.store.rows.get(job_id) for job_id in job_ids]
            except UnavailableError:
                return []

        return await happens(views, lambda found: found and all(view.state in TERMINAL for view in found))

    async def coordinator_stats(self) -> Any:  # noqa: ANN401 - as it comes
        return await self.lines.ask(self.coordinator_address, "/coordinator/stats")


class WorkerHere:
    """A worker that runs for the duration of a block."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self.worker.run())
        await self.worker.attached.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.worker.stop()
        self.worker.stop()
        assert self.task is not None
        await asyncio.wait([self.task])

    async def die(self) -> None:
        """Ends without a goodbye: the worker hands back no lease and notifies no role."""
        assert self.task is not None
        self.task.cancel()
        await asyncio.wait([self.task])


class Ran:
    """A handler that records its jobs and can be blocked."""

    def __init__(self) -> None:
        self.job_ids: list[str] = []
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, lease: Assignment) -> bytes:
        self.job_ids.append(lease.job_id)
        await self.go.wait()
        return lease.payload

    def handlers(self, *types: str) -> dict[str, Handler]:
        return {name: Handler(self) for name in types or ("echo",)}
