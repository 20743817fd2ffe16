"""The pipeline as real processes around a PostgreSQL: clients call its gateway, workers its queue processes."""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path

import psycopg

from holdfast.client.remote import RemoteJobs
from holdfast.client.wire_transport import tcp_transport
from holdfast.core.capabilities import Capabilities, Capability
from holdfast.ports import AdminApi, CapabilityApi, FeedApi, JobApi, ScheduleApi, WorkApi
from holdfast.process.private_postgres import PrivatePostgres
from holdfast.testing.conformance.harness import Control, Need, Terms
from holdfast.topologies.pipeline import PIPELINE
from holdfast.topologies.pipeline.backend.http_client import RoleConnections
from holdfast.topologies.pipeline.backend.work_api import PipelineWork
from holdfast.topologies.pipeline.backend.work_stats import WorkConfig
from holdfast.topologies.pipeline.postgres.database import PostgresStore, open_store
from tests.backends.microservices import until_it_works
from tests.e2e.fleet import Fleet, Program, stable_port
from tests.e2e.wait_until import eventually
from tests.postgres import QUICK, require_postgres

#: Environment of every role.
_OFTEN = {"HOLDFAST_LOG_LEVEL": "error"}
#: The roles that use the database, and a queue process, which holds tickets in memory.
_STATEFUL = ("scheduler", "watcher", "normal")


class PipelineProcesses:
    """A PostgreSQL, one process per role, and two queue processes, all on fixed ports."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self._fleet = fleet
        self._postgres = PrivatePostgres(folder, QUICK)
        self._ports = {name: stable_port() for name in ("grpc", "http", *_COMMANDS)}
        self._programs: dict[str, Program] = {}
        #: Whether a job has gone through all roles.
        self.is_seen_working = False
        self.url = ""

    @property
    def gateway(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self._ports['grpc']}"

    @property
    def coordinator(self) -> str:
        """The address for workers."""
        return f"127.0.0.1:{self._ports['coordinator']}"

    def start(self) -> None:
        """Starts the database and then all roles at once; waits until each is ready."""
        self.url = self._postgres.start()
        self._start(*_COMMANDS)

    def _start(self, *names: str) -> None:
        ports = {name: str(port) for name, port in self._ports.items()}
        for name in names:
            arguments = [part.format_map(ports) for part in _COMMANDS[name]]
            environment = {**_OFTEN, "HOLDFAST_DATABASE": self.url}
            command = ("pipeline", arguments[0], "--port", ports["http" if name == "gateway" else name], *arguments[1:])
            self._programs[name] = self._fleet.start(*command, **environment)
        for name in names:
            self._programs[name].ready()

    def restart(self) -> None:
        """Crashes the database like a power cut and kills the stateful roles, then starts all of them again."""
        for name in _STATEFUL:
            self._programs[name].kill()
        before = self._database_start()
        self._postgres.crash()
        eventually(self._database_start, lambda start: start not in {None, before}, "the database")
        self._start(*_STATEFUL)
        self.is_seen_working = False

    def _database_start(self) -> object:
        """The start time of the database; None while it does not reply."""
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute("SELECT pg_postmaster_start_time()").fetchone()
        return None

    def empty(self) -> None:
        """Deletes every job and every schedule."""
        eventually(self._is_emptied, what="the end of the transaction that holds the tables")

    def _is_emptied(self) -> bool:
        """Whether the tables were truncated; a deadlock with another transaction means that they were not."""
        emptying = f"TRUNCATE {', '.join(f'holdfast.{name}' for name in _TABLES)}".encode()
        with (
            contextlib.suppress(psycopg.errors.DeadlockDetected),
            psycopg.connect(self.url, autocommit=True) as connection,
        ):
            connection.execute(emptying)
            return True
        return False

    def end(self) -> None:
        """Kills the processes of the roles and stops the database."""
        for program in self._programs.values():
            program.kill()
        self._postgres.stop()


_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "scheduler": ("scheduler", "--leader-ms", "600"),
    "normal": ("queue", "--type", "normal"),
    "high": ("queue", "--type", "high"),
    "exchange": ("exchange", "--normal", "{normal}", "--high", "{high}"),
    "coordinator": ("coordinator", "--normal", "{normal}", "--high", "{high}"),
    "watcher": ("watcher", "--exchanges", "{exchange}", "--poll-ms", "200", "--visibility-ms", "2000"),
    "gateway": ("gateway", "--schedulers", "{scheduler}", "--grpc-port", "{grpc}", "--check-ms", "100", "--no-http"),
}
_TABLES = ("jobs", "executions", "completed", "failed", "tallies", "queues", "schedules", "ticks")


class PipelineSets:
    """Pool of one set of processes, started for the first test and ended after the last."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._shared: PipelineProcesses | None = None

    def shared(self) -> PipelineProcesses:
        """The shared processes; tests run one at a time, and a test that needs an empty backend empties it first."""
        if self._shared is None:
            require_postgres()
            self._shared = PipelineProcesses(self._fleet, self._fleet.folder / "shared")
            self._shared.start()
        return self._shared

    def end(self) -> None:
        """Ends the processes."""
        if self._shared is not None:
            self._shared.end()


class Pipeline:
    """The connections of one test to a set of processes; its workers choose the length of their leases."""

    def __init__(self, sets: PipelineSets) -> None:
        self._sets = sets
        self._processes: PipelineProcesses
        self._remote: RemoteJobs
        self._store: PostgresStore
        self._lines: RoleConnections
        self._work: PipelineWork
        self._terms = Terms()

    @property
    def declared(self) -> Capabilities:
        return PIPELINE

    @property
    def beyond(self) -> frozenset[Need]:
        # A queue process keeps the order of its tickets, and there is one queue process of each kind here.
        return frozenset({Control.RESTART, Capability.ORDER})

    @property
    def backend(self) -> CapabilityApi:
        return self._remote

    @property
    def jobs(self) -> JobApi:
        return self._remote

    @property
    def work(self) -> WorkApi:
        return self._work

    @property
    def admin(self) -> AdminApi:
        return self._remote

    @property
    def feed(self) -> FeedApi:
        return self._remote

    @property
    def schedules(self) -> ScheduleApi:
        return self._remote.schedules

    async def start(self, terms: Terms) -> None:
        self._terms = terms
        self._processes = await asyncio.to_thread(self._sets.shared)
        self._lines = RoleConnections()
        await self._connect()
        if terms.is_alone and not terms.may_be_used:
            await asyncio.to_thread(self._processes.empty)

    async def _connect(self) -> None:
        self._store = await open_store(self._processes.url, pool_size=2, name="holdfast test", statement_ms=60_000)
        config = WorkConfig(coordinator=self._processes.coordinator, lease_ms=self._terms.lease_ms)
        self._work = PipelineWork(self._store.leases, self._lines, config)
        self._remote = RemoteJobs(tcp_transport(self._processes.gateway))
        if not self._processes.is_seen_working:
            await until_it_works(self._remote, self.work)
            self._processes.is_seen_working = True

    async def stop(self) -> None:
        await self._disconnect()
        await self._lines.close()

    async def _disconnect(self) -> None:
        await self._remote.close()
        await self._store.close()

    async def restart(self) -> None:
        """Restarts the processes; workers keep their connections to the coordinator."""
        await self._disconnect()
        await asyncio.to_thread(self._processes.restart)
        await self._connect()

    async def advance(self, ms: int) -> None:
        raise NotImplementedError
