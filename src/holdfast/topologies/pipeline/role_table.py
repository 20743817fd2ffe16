"""The roles of the pipeline: the options of each, and the function that opens it in its process.

Only the modules of the role that is opened are imported.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.state_change import LogChanges
from holdfast.server.http.routing import Route
from holdfast.settings import Settings
from holdfast.topologies.pipeline.roles.role_health import RoleHealth

if TYPE_CHECKING:
    from holdfast.topologies.pipeline.backend.http_client import RoleConnections

# ruff: noqa: PLC0415


class RoleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a role, in addition to the settings; addresses are `host:port`."""

    role: str
    port: int
    exchanges: tuple[str, ...] = ()
    normal: tuple[str, ...] = ()
    high: tuple[str, ...] = ()
    #: For a queue process: its kind, and its index among the processes of that kind.
    kind: str = "normal"
    index: int = 0
    #: 0: the default of the role; so for the next ones.
    poll_ms: int = 0
    visibility_ms: int = 0
    heartbeat_ms: int = 0
    leader_ms: int = 0

    def said(self, *names: str) -> dict[str, int]:
        """Returns those of these times that were given."""
        return {name: getattr(self, name) for name in names if getattr(self, name)}


class RolePart(msgspec.Struct, frozen=True):
    """A role that was opened, and does not listen yet."""

    routes: list[Route]
    vitals: RoleHealth


class RoleContext(msgspec.Struct, frozen=True):
    """The context in which a role is opened; `closing` closes its resources in the reverse order."""

    settings: Settings
    closing: AsyncExitStack
    #: Authenticates the role to the roles that it calls.
    token: str = ""
    #: Logs the transitions that the role has committed.
    log: LogChanges | None = None

    def lines(self) -> "RoleConnections":
        """Returns connections to other roles, which are closed with the stack."""
        from holdfast.topologies.pipeline.backend.http_client import RoleConnections

        lines = RoleConnections(token=self.token)
        self.closing.push_async_callback(lines.close)
        return lines


Open = Callable[[RoleOptions, RoleContext], Awaitable[RolePart]]


async def open_part(options: RoleOptions, context: RoleContext) -> RolePart:
    """Opens the role that the options name."""
    return await _OPENERS[options.role](options, context)


async def _scheduler(options: RoleOptions, context: RoleContext) -> RolePart:
    from holdfast.server.backend import Backend
    from holdfast.topologies.pipeline import PIPELINE
    from holdfast.topologies.pipeline.backend.admin_api import PipelineAdmin
    from holdfast.topologies.pipeline.backend.cron_leader import TAKEOVER_MS, CronLeader, terms
    from holdfast.topologies.pipeline.backend.job_api import PipelineJobs
    from holdfast.topologies.pipeline.postgres.database import open_store
    from holdfast.topologies.pipeline.roles.scheduler import SchedulerRole, short_retries
    from holdfast.worker.worker_name import fresh_name

    settings, closing = context.settings, context.closing
    store = await open_store(settings.database, name=f"holdfast scheduler {options.port}", log=context.log)
    closing.push_async_callback(store.close)
    jobs = PipelineJobs(store)
    closing.push_async_callback(jobs.close)
    backend = Backend(
        jobs,
        admin=PipelineAdmin(store),
        schedules=store.schedules,
        histories=jobs,
        declared=PIPELINE,
        short_retries=short_retries(settings.retries, settings.retry_ms),
    )
    lease_ms, interval_s = terms(options.leader_ms or TAKEOVER_MS)
    leader = CronLeader(store.schedules, fresh_name(), interval_s=interval_s, lease_ms=lease_ms)
    scheduler = SchedulerRole(backend, leader, store.cluster_id)
    await scheduler.start()
    closing.push_async_callback(scheduler.stop)
    return RolePart(scheduler.routes(), scheduler.vitals())


async def _watcher(options: RoleOptions, context: RoleContext) -> RolePart:
    from holdfast.topologies.pipeline.postgres.database import open_store
    from holdfast.topologies.pipeline.roles.exchange_clients import ExchangeClients
    from holdfast.topologies.pipeline.roles.watcher import WatcherConfig, WatcherRole

    settings, closing = context.settings, context.closing
    store = await open_store(settings.database, name=f"holdfast watcher {options.port}", log=context.log)
    closing.push_async_callback(store.close)
    config = WatcherConfig(
        retain_ms=settings.retain_ms,
        retain_failed_ms=settings.failed_retention_ms,
        **options.said("poll_ms", "visibility_ms"),
    )
    watcher = WatcherRole(config, store.claims, store.workers, ExchangeClients(options.exchanges, context.lines()))
    watcher.start()
    closing.push_async_callback(watcher.stop)
    return RolePart(watcher.routes(), watcher.vitals())


async def _exchange(options: RoleOptions, context: RoleContext) -> RolePart:
    from holdfast.topologies.pipeline.roles.exchange import ExchangeConfig, ExchangeRole

    exchange = ExchangeRole(ExchangeConfig(normal=options.normal, high=options.high), context.lines())
    return RolePart(exchange.routes(), exchange.vitals())


async def _queue(options: RoleOptions, context: RoleContext) -> RolePart:
    from holdfast.topologies.pipeline.roles.queue import QueueConfig, QueueRole

    queue = QueueRole(QueueConfig(kind=options.kind, index=options.index, aging_ms=context.settings.aging_ms))
    return RolePart(queue.routes(), queue.vitals())


async def _coordinator(options: RoleOptions, context: RoleContext) -> RolePart:
    from holdfast.topologies.pipeline.postgres.database import open_store
    from holdfast.topologies.pipeline.roles.coordinator import CoordinatorConfig, PipelineCoordinator
    from holdfast.topologies.pipeline.roles.worker_table import QueueList

    settings, closing = context.settings, context.closing
    name = f"holdfast coordinator {options.port}"
    store = await open_store(settings.database, name=name, pool_size=2, log=context.log)
    closing.push_async_callback(store.close)
    queues = QueueList(normal=options.normal, high=options.high)
    coordinator = PipelineCoordinator(CoordinatorConfig(queues=queues, **options.said("heartbeat_ms")), store.workers)
    coordinator.start()
    closing.push_async_callback(coordinator.stop)
    return RolePart(coordinator.routes(), coordinator.vitals())


_OPENERS: dict[str, Open] = {
    "scheduler": _scheduler,
    "watcher": _watcher,
    "exchange": _exchange,
    "queue": _queue,
    "coordinator": _coordinator,
}
