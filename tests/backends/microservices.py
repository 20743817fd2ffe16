"""The services of design A as real processes: clients call the gateway, workers make unary calls to the coordinator."""

import asyncio
import contextlib
import uuid
from pathlib import Path

from holdfast.client.remote import RemoteJobs
from holdfast.client.wire_transport import tcp_transport
from holdfast.core.capabilities import Capabilities
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import DONE
from holdfast.core.model import Template
from holdfast.errors import UnavailableError
from holdfast.ports import (
    AdminApi,
    CapabilityApi,
    FeedApi,
    Introduction,
    JobApi,
    JobDraft,
    ScheduleApi,
    WorkApi,
)
from holdfast.testing.conformance.harness import Control, Need, Terms
from holdfast.testing.conformance.workplace import PATIENCE_S
from holdfast.topologies.microservices import MICROSERVICES
from holdfast.topologies.microservices.backend.work_api import UnaryWork
from tests.backends.process_pool import Lender
from tests.e2e.fleet import Fleet, Program, stable_port

#: The interval of the coordinator's rounds; short, because tests wait for them.
_HEARTBEAT_MS = 100
_OWNERS = ("job", "queue", "result")
_ROLES = (*_OWNERS, "coordinator", "gateway")


class ServiceProcesses:
    """One process per role, each on a fixed port; with a folder the owners store their data on disk."""

    def __init__(self, fleet: Fleet, lease_ms: int, data: Path | None) -> None:
        self._fleet = fleet
        self._data = data
        ports = {role: stable_port() for role in _ROLES}
        self._addresses = {role: f"127.0.0.1:{port}" for role, port in ports.items()}
        self._environment = {
            **{f"{role.upper()}_PORT": str(port) for role, port in ports.items()},
            **{f"{role.upper()}_SERVICE_ADDR": self._addresses[role] for role in _OWNERS},
            "COORDINATOR_ADDR": self._addresses["coordinator"],
            "HEARTBEAT_INTERVAL_MS": str(_HEARTBEAT_MS),
            "WORKER_TIMEOUT_MS": str(lease_ms),
            "LOG_LEVEL": "ERROR",
        }
        self._programs: dict[str, Program] = {}
        #: Whether a job has gone through all services.
        self.is_seen_working = False

    @property
    def gateway(self) -> str:
        """The address for clients."""
        return self._addresses["gateway"]

    @property
    def coordinator(self) -> str:
        """The address for workers."""
        return self._addresses["coordinator"]

    def start(self) -> None:
        """Starts all processes at once and waits until each is ready."""
        self.is_seen_working = False
        for role in _ROLES:
            data = ("--data", str(self._data)) if self._data is not None and role in _OWNERS else ()
            self._programs[role] = self._fleet.start("service", role, *data, **self._environment)
        for program in self._programs.values():
            program.ready()

    def kill(self) -> None:
        """Kills all processes, like a power cut."""
        for program in self._programs.values():
            program.kill()


class ServiceSets(Lender[ServiceProcesses]):
    """Pool of service processes: on disk for tests that restart them, in memory for all others."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self._fleet = fleet
        self._count = 0

    def is_kept(self, terms: Terms) -> bool:
        return terms.is_alone

    def new(self, lease_ms: int, *, is_kept: bool) -> ServiceProcesses:
        self._count += 1
        data = self._fleet.folder / f"data-{self._count}" if is_kept else None
        services = ServiceProcesses(self._fleet, lease_ms, data)
        services.start()
        return services


class Microservices:
    """The connections of one test to a set of services."""

    def __init__(self, sets: ServiceSets) -> None:
        self._sets = sets
        self._services: ServiceProcesses
        self._remote: RemoteJobs
        self._terms = Terms()

    @property
    def declared(self) -> Capabilities:
        return MICROSERVICES

    @property
    def beyond(self) -> frozenset[Need]:
        return frozenset({Control.RESTART})

    @property
    def backend(self) -> CapabilityApi:
        return self._remote

    @property
    def jobs(self) -> JobApi:
        return self._remote

    @property
    def work(self) -> WorkApi:
        return UnaryWork(self._services.coordinator)

    @property
    def admin(self) -> AdminApi:
        raise NotImplementedError

    @property
    def feed(self) -> FeedApi:
        raise NotImplementedError

    @property
    def schedules(self) -> ScheduleApi:
        raise NotImplementedError

    async def start(self, terms: Terms) -> None:
        self._terms = terms
        self._services = await asyncio.to_thread(self._sets.lend, terms)
        await self._connect()

    async def _connect(self) -> None:
        self._remote = RemoteJobs(tcp_transport(self._services.gateway))
        if not self._services.is_seen_working:
            await until_it_works(self._remote, self.work)
            self._services.is_seen_working = True

    async def stop(self) -> None:
        await self._remote.close()
        self._sets.give_back(self._terms, self._services)

    async def restart(self) -> None:
        await self._remote.close()
        await asyncio.to_thread(self._sets.restart, self._terms, self._services)
        await self._connect()

    async def advance(self, ms: int) -> None:
        raise NotImplementedError


async def until_it_works(jobs: JobApi, work: WorkApi) -> None:
    """Waits until the services have found each other; until then their calls fail as unavailable."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(UnavailableError):
                return await _one_job(jobs, work)


async def _one_job(jobs: JobApi, work: WorkApi) -> None:
    """Runs one job from submit to end, which needs every service."""
    name = f"probe-{uuid.uuid4()}"
    submitted = await jobs.submit([Template(name, name)], [JobDraft(id=str(uuid.uuid4()))])
    for refusal in submitted.refusals.values():
        raise refusal.error()
    session = await work.open(Introduction(name, frozenset({name})))
    try:
        await session.want(1)
        while not (leases := (await session.next()).leases):
            pass
        await session.report(1, [ReportRow(leases[0].job_id, leases[0].token, DONE)])
        await jobs.settled(leases[0].job_id)
    finally:
        await session.close()
