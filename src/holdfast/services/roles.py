"""The four services that are called by others, each as one process serves it.

Every owner has a directory of its own within the one that is named, so that one name serves all of them.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from holdfast.client.channel import open_channel
from holdfast.clock import SystemClock
from holdfast.core import envelopes, line, records
from holdfast.errors import FailedPreconditionError
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.services.callers import credential
from holdfast.services.coordinator import Coordinator, CoordinatorService, Terms
from holdfast.services.environment import (
    CoordinatorEnvironment,
    JobEnvironment,
    QueueEnvironment,
    ResultEnvironment,
    hashes_of,
)
from holdfast.services.job import JobService
from holdfast.services.keeper import Keeper
from holdfast.services.keeping_journal import Machine
from holdfast.services.peers import Peers
from holdfast.services.queue import QueueService
from holdfast.services.result import ResultService
from holdfast.services.server import ServiceServer

#: How long calls under way may take when a service stops.
GRACE_S = 2.0
#: Waiting this long counts as one step of priority.
_AGING_MS = 60_000

Fatal = Callable[[BaseException], None]


class Service(Protocol):
    """What one process serves."""

    async def start(self, host: str) -> str:
        """Listens, and returns the address; `UnavailableError` if the port cannot be had."""
        ...

    async def stop(self) -> None:
        """Refuses new calls, answers those under way, and ends in good order."""
        ...


class KeptService:
    """A service over a keeper."""

    def __init__(self, server: ServiceServer, port: int, keeper: Keeper) -> None:
        self._server = server
        self._port = port
        self._keeper = keeper

    async def start(self, host: str) -> str:
        """Listens; if it cannot, the directory is given back."""
        try:
            return await self._server.start(host, self._port)
        except BaseException:
            await self._keeper.close()
            raise

    async def stop(self) -> None:
        """What was decided is durable and answered."""
        await self._server.stop(GRACE_S)
        await self._keeper.close()


class CoordinatorRole:
    """Who lives and who runs what; calls the owners, and keeps nothing."""

    def __init__(self, environment: CoordinatorEnvironment, fatal: Fatal) -> None:
        self._port = environment.port
        self._fatal = fatal
        self._channels = [
            open_channel(address)
            for address in (environment.job_address, environment.queue_address, environment.result_address)
        ]
        job, queue, result = self._channels
        peers = Peers(job=job, queue=queue, result=result, credentials=credential(environment.token))
        terms = Terms(heartbeat_ms=environment.heartbeat_ms, worker_timeout_ms=environment.worker_timeout_ms)
        self._coordinator = Coordinator(peers, terms, SystemClock())
        self._server = ServiceServer(full_name("CoordinatorInternalService"), hashes_of(environment))
        rpc.add_CoordinatorInternalServiceServicer_to_server(
            CoordinatorService(self._coordinator), self._server.handlers
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
        for channel in self._channels:
            await channel.close(None)


def full_name(service: str) -> str:
    """As it is called on the wire."""
    return pb.DESCRIPTOR.services_by_name[service].full_name


def open_job(environment: JobEnvironment, data: Path | None, fatal: Fatal) -> Service:
    """The records."""
    # On disk request ids are kept as long as their jobs: the bound is for what is only in memory.
    machine = records.Records(0 if data else environment.dedup_keys_max)
    keeper = _keeper(machine, data and data / "job", records.DIGEST_VERSION, fatal)
    server = ServiceServer(full_name("JobInternalService"), hashes_of(environment))
    rpc.add_JobInternalServiceServicer_to_server(JobService(keeper, machine), server.handlers)
    return KeptService(server, environment.port, keeper)


def open_queue(environment: QueueEnvironment, data: Path | None, fatal: Fatal) -> Service:
    """What waits."""
    machine = line.Line(_AGING_MS)
    keeper = _keeper(machine, data and data / "queue", line.DIGEST_VERSION, fatal)
    server = ServiceServer(full_name("QueueInternalService"), hashes_of(environment))
    rpc.add_QueueInternalServiceServicer_to_server(QueueService(keeper, machine), server.handlers)
    return KeptService(server, environment.port, keeper)


def open_result(environment: ResultEnvironment, data: Path | None, fatal: Fatal) -> Service:
    """How jobs ended."""
    machine = envelopes.Envelopes(envelopes.Retention())
    keeper = _keeper(machine, data and data / "result", envelopes.DIGEST_VERSION, fatal)
    service = ResultService(keeper, machine, output_bytes_max=environment.output_bytes_max)
    server = ServiceServer(full_name("ResultInternalService"), hashes_of(environment))
    rpc.add_ResultInternalServiceServicer_to_server(service, server.handlers)
    return KeptService(server, environment.port, keeper)


def _keeper(machine: Machine, data: Path | None, digest_version: int, fatal: Fatal) -> Keeper:
    loop = asyncio.get_running_loop()
    try:
        return Keeper.open(machine, data, digest_version=digest_version, clock=SystemClock(), loop=loop, fatal=fatal)
    except OSError as error:
        raise FailedPreconditionError(
            f"{str(data)!r} cannot be the data directory: {error.strerror or error};"
            " choose another, or make it a directory that this user may write",
            reason="DATA_UNUSABLE",
        ) from error
