"""The parts of every service process: a server, and for owners a keeper.

Each service has its own module (`job_service`, ...), so that a process imports only the service that it runs. Every
owner has its own directory within `--data`, so that all owners can be given the same path.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.clock import system_clock
from holdfast.errors import FailedPreconditionError
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.topologies.microservices.services.environment import OwnerEnvironment
from holdfast.topologies.microservices.services.internal_server import ServiceServer
from holdfast.topologies.microservices.services.owner import SNAPSHOTS, StateOwner
from holdfast.topologies.microservices.services.owner_journal import StateMachine

#: How long calls in progress may take when a service stops.
GRACE_S = 2.0

Fatal = Callable[[BaseException], None]


class Host(msgspec.Struct, frozen=True):
    """The process around a service."""

    #: Called with the error if the service cannot continue.
    fatal: Fatal
    #: The command that makes a snapshot of a directory; None: a thread of the service makes it.
    snapshot_command: Callable[[Path], list[str]] | None = None


class Service(Protocol):
    """The service that one process runs."""

    async def start(self, host: str) -> str:
        """Listens, and returns the address; `UnavailableError` if the port is not available."""
        ...

    async def stop(self) -> None:
        """Refuses new calls, answers those in progress, and closes everything."""
        ...


class OwnerService:
    """A service over a keeper."""

    def __init__(self, server: ServiceServer, port: int, state_owner: StateOwner) -> None:
        self._server = server
        self._port = port
        self._state_owner = state_owner

    async def start(self, host: str) -> str:
        """Listens; if that fails, closes the keeper, which releases the directory."""
        try:
            return await self._server.start(host, self._port)
        except BaseException:
            await self._state_owner.close()
            raise

    async def stop(self) -> None:
        """Answers calls in progress, makes decided events durable, and closes the journal."""
        await self._server.stop(GRACE_S)
        await self._state_owner.close()


def full_name(service: str) -> str:
    """Returns the full name of the service on the wire."""
    return pb.DESCRIPTOR.services_by_name[service].full_name


def opened(machine: StateMachine, data: Path | None, host: Host, environment: OwnerEnvironment) -> StateOwner:
    """Opens the keeper of a directory (None: in memory); errors say what to do, and change nothing."""
    loop = asyncio.get_running_loop()
    try:
        return StateOwner.open(
            machine,
            data,
            clock=system_clock(),
            loop=loop,
            fatal=host.fatal,
            snapshots=msgspec.structs.replace(SNAPSHOTS, snapshot_bytes=environment.snapshot_bytes),
            command=host.snapshot_command(data) if data is not None and host.snapshot_command is not None else None,
        )
    except OSError as error:
        raise FailedPreconditionError(
            f"{str(data)!r} cannot be the data directory: {error.strerror or error};"
            " choose another, or make it a directory that this user may write",
            reason="DATA_UNUSABLE",
        ) from error
