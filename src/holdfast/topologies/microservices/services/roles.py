"""The parts of every service process: a server, and for owners a keeper.

Each service has a module of its own (`job_service`, ...), so that a process loads what it serves and nothing else.
Every owner has a directory of its own within the one that is named, so that one name serves all of them.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.clock import system_clock
from holdfast.errors import FailedPreconditionError
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.topologies.microservices.services.internal_server import ServiceServer
from holdfast.topologies.microservices.services.owner import Keeper
from holdfast.topologies.microservices.services.owner_journal import Machine

#: How long calls under way may take when a service stops.
GRACE_S = 2.0

Fatal = Callable[[BaseException], None]


class Host(msgspec.Struct, frozen=True):
    """The process around a service."""

    #: Hears that the service cannot go on.
    fatal: Fatal
    #: The command that makes a snapshot of a directory; None: the service does that itself, on a thread.
    snapshot_command: Callable[[Path], list[str]] | None = None


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


def full_name(service: str) -> str:
    """As it is called on the wire."""
    return pb.DESCRIPTOR.services_by_name[service].full_name


def opened(machine: Machine, data: Path | None, host: Host) -> Keeper:
    """What this directory keeps (None: in memory); errors say what to do, and change nothing."""
    loop = asyncio.get_running_loop()
    try:
        return Keeper.open(
            machine,
            data,
            clock=system_clock(),
            loop=loop,
            fatal=host.fatal,
            command=host.snapshot_command(data) if data is not None and host.snapshot_command is not None else None,
        )
    except OSError as error:
        raise FailedPreconditionError(
            f"{str(data)!r} cannot be the data directory: {error.strerror or error};"
            " choose another, or make it a directory that this user may write",
            reason="DATA_UNUSABLE",
        ) from error
