"""The microservices on one event loop, each on a real port, so that a test can stop any of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from holdfast.clock import SystemClock
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.topologies.microservices.backend.job_api import ServiceJobs
from holdfast.topologies.microservices.backend.owner_clients import Owners
from holdfast.topologies.microservices.backend.work_api import UnaryWork
from holdfast.topologies.microservices.grpc_channel import open_channel
from holdfast.topologies.microservices.services.coordinator_service import (
    CoordinatorServicer,
    WorkCoordinator,
    WorkTerms,
)
from holdfast.topologies.microservices.services.internal_server import ServiceServer
from holdfast.topologies.microservices.services.job_service import JobService
from holdfast.topologies.microservices.services.owner import StateOwner
from holdfast.topologies.microservices.services.owner_journal import StateMachine
from holdfast.topologies.microservices.services.queue_service import QueueService
from holdfast.topologies.microservices.services.result_service import ResultService
from holdfast.topologies.microservices.state import envelopes, records, waiting_jobs
from tests.e2e.fleet import stable_port
from tests.unit.topologies.microservices.owner_server import DEADLINE_MS, patient

HOST = "127.0.0.1"


class Served:
    """One service on a port of its own; its state outlives a stop."""

    def __init__(self, register: Any, servicer: object) -> None:  # noqa: ANN401 - a generated function
        self._register = register
        self._servicer = servicer
        self._server: ServiceServer
        self.address = f"{HOST}:{stable_port()}"

    async def start(self, servicer: object | None = None) -> None:
        """Starts on the same port as before, with another servicer if one is given."""
        self._server = ServiceServer("a service", {})
        self._register(servicer or self._servicer, self._server.handlers)
        self.address = await self._server.start(HOST, int(self.address.rpartition(":")[2]))

    async def stop(self) -> None:
        """Stops the server."""
        await self._server.stop(0)


class ServicesHere:
    """All five services, in memory."""

    def __init__(self, terms: WorkTerms) -> None:
        self._terms = terms
        self.keepers: list[StateOwner] = []
        self.failures: list[BaseException] = []
        self.records = records.Records(0)
        waiting, ended = waiting_jobs.WaitingJobs(60_000), envelopes.Envelopes(envelopes.EnvelopeRetention.beyond())
        self.job_service = JobService(self._state_owner(self.records), self.records)
        self.queue_service = QueueService(self._state_owner(waiting), waiting)
        self.result_service = ResultService(self._state_owner(ended), ended)
        self.job = Served(rpc.add_JobInternalServiceServicer_to_server, self.job_service)
        self.queue = Served(rpc.add_QueueInternalServiceServicer_to_server, self.queue_service)
        self.result = Served(rpc.add_ResultInternalServiceServicer_to_server, self.result_service)
        self.coordinator: Served
        self.owners: Owners

    def _state_owner(self, machine: StateMachine) -> StateOwner:
        loop = asyncio.get_running_loop()
        state_owner = StateOwner.open(machine, None, clock=SystemClock(), loop=loop, fatal=self.failures.append)
        self.keepers.append(state_owner)
        return state_owner

    def channels(self) -> dict[str, Any]:
        """Opens one channel to each owner."""
        owners = {"job": self.job, "queue": self.queue, "result": self.result}
        return {name: open_channel(owner.address) for name, owner in owners.items()}

    def jobs(self) -> ServiceJobs:
        """Returns a new gateway."""
        return ServiceJobs(self.owners)

    def work(self) -> UnaryWork:
        """Returns the work client for workers."""
        return UnaryWork(self.coordinator.address)

    @asynccontextmanager
    async def channel_to_coordinator(self) -> AsyncIterator[Any]:
        """Yields a stub for the coordinator's calls."""
        async with open_channel(self.coordinator.address) as channel:
            yield rpc.CoordinatorInternalServiceStub(channel)


@asynccontextmanager
async def services_here(terms: WorkTerms | None = None) -> AsyncIterator[ServicesHere]:
    """Serves until the block ends."""
    with patient():
        async with _served(ServicesHere(terms or WorkTerms(heartbeat_ms=100))) as services:
            yield services


@asynccontextmanager
async def _served(services: ServicesHere) -> AsyncIterator[ServicesHere]:
    for owner in (services.job, services.queue, services.result):
        await owner.start()
    services.owners = Owners(**services.channels(), timeout_ms=DEADLINE_MS)
    channels = services.channels()
    coordinator = WorkCoordinator(Owners(**channels, timeout_ms=DEADLINE_MS), services._terms, SystemClock())
    services.coordinator = Served(
        rpc.add_CoordinatorInternalServiceServicer_to_server, CoordinatorServicer(coordinator)
    )
    await services.coordinator.start()
    running = asyncio.create_task(coordinator.run())
    try:
        yield services
    finally:
        await services.coordinator.stop()
        running.cancel()
        await asyncio.wait([running])
        await coordinator.stop()
        for channel in channels.values():
            await channel.close()
        await services.owners.close()
        for owner in (services.job, services.queue, services.result):
            await owner.stop()
        for state_owner in services.keepers:
            await state_owner.close()
    assert services.failures == []
