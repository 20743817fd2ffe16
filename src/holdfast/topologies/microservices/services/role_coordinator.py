"""The coordinator service as one process serves it: who lives, and who runs what."""

import asyncio

from holdfast.client.channel import open_channel
from holdfast.clock import system_clock
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.topologies.microservices.backend.owner_clients import Owners
from holdfast.topologies.microservices.services.callers import credential
from holdfast.topologies.microservices.services.coordinator_service import (
    CoordinatorServicer,
    WorkCoordinator,
    WorkTerms,
)
from holdfast.topologies.microservices.services.environment import CoordinatorEnvironment, hashes_of
from holdfast.topologies.microservices.services.internal_server import ServiceServer
from holdfast.topologies.microservices.services.roles import GRACE_S, Fatal, full_name


class CoordinatorRole:
    """Who lives and who runs what; calls the owners, and keeps nothing."""

    def __init__(self, environment: CoordinatorEnvironment, fatal: Fatal) -> None:
        self._port = environment.port
        self._fatal = fatal
        self._owners = Owners(
            job=open_channel(environment.job_address),
            queue=open_channel(environment.queue_address),
            result=open_channel(environment.result_address),
            metadata=credential(environment.token),
            timeout_ms=environment.internal_timeout_ms,
        )
        terms = WorkTerms(heartbeat_ms=environment.heartbeat_ms, worker_timeout_ms=environment.worker_timeout_ms)
        self._coordinator = WorkCoordinator(self._owners, terms, system_clock())
        self._server = ServiceServer(full_name("CoordinatorInternalService"), hashes_of(environment))
        rpc.add_CoordinatorInternalServiceServicer_to_server(
            CoordinatorServicer(self._coordinator), self._server.handlers
        )
        self._running: asyncio.Task[None] | None = None

    async def start(self, host: str) -> str:
        """Listens, whether the owners are there or not."""
        address = await self._server.start(host, self._port)
        self._running = asyncio.create_task(self._coordinator.run())
        self._running.add_done_callback(self._ended)
        return address

    def _ended(self, running: "asyncio.Task[None]") -> None:
        """Without it leases would never end: a process that cannot look at the time is replaced."""
        if not running.cancelled() and (error := running.exception()) is not None:
            self._fatal(error)

    async def stop(self) -> None:
        """Calls under way are answered; what else was begun is found by the next process."""
        await self._server.stop(GRACE_S)
        if self._running is not None:
            self._running.cancel()
        await self._coordinator.stop()
        await self._owners.close()
