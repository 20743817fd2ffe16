"""The parts of every service process: a server, and for owners a keeper.

Each service has its own module (`job_service`, ...), so that a process imports only the service that it runs. Every
owner has its own directory within `--data`, so that all owners can be given the same path.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.clock import system_clock
from holdfast.errors import FailedPreconditionError
from holdfast.journal.disk import Disk
from holdfast.journal.os_disk import OsDisk
from holdfast.ledger.recovery import Progress
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.server.startup import Startup, recover_behind_ports
from holdfast.topologies.microservices import SNAPSHOTS_HEALTH
from holdfast.topologies.microservices.services.environment import OwnerEnvironment, hashes_of
from holdfast.topologies.microservices.services.internal_server import ServiceServer
from holdfast.topologies.microservices.services.owner import SNAPSHOTS, OwnerRecovery, StateOwner
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
    #: Called with the address of an owner that listens during its recovery; None: it listens once it has recovered.
    listening: Callable[[str], None] | None = None
    open_disk: Callable[[Path], Disk] = OsDisk


class Service(Protocol):
    """The service that one process runs."""

    async def start(self, host: str) -> str:
        """Serves, and returns the address; `UnavailableError` if the port is not available."""
        ...

    def give_up(self) -> None:
        """Ends a start that is still in progress: it raises `StartStoppedError`."""
        ...

    async def stop(self) -> None:
        """Refuses new calls, answers those in progress, and closes everything."""
        ...


class OwnerDefinition(msgspec.Struct, frozen=True):
    """The parts in which owners differ."""

    #: The name of its service in the contract.
    service: str
    #: The folder within the data directory.
    folder: str
    machine: StateMachine
    #: Registers the service of a keeper with a server.
    register: Callable[[StateOwner, ServiceServer], None]


class OwnerService:
    """A service over a keeper. With a directory it recovers on a thread."""

    def __init__(
        self, definition: OwnerDefinition, environment: OwnerEnvironment, data: Path | None, host: Host
    ) -> None:
        """`data` is the directory of all owners; None: in memory."""
        self._definition = definition
        self._port = environment.port
        self._data = data and data / definition.folder
        self._host = host
        self._snapshots = msgspec.structs.replace(SNAPSHOTS, snapshot_bytes=environment.snapshot_bytes)
        self._startup = Startup()
        self._server = ServiceServer(full_name(definition.service), hashes_of(environment), self._startup)
        self._reports: set[asyncio.Task[None]] = set()
        self._state_owner: StateOwner

    async def start(self, host: str) -> str:
        """Recovers, listens and serves; a failure releases the port and the directory, and changes no job."""
        recovery = None if self._data is None else await self._recovered(self._data, host)
        state_owner = self._state_owner = await self._serving(recovery)
        self._definition.register(state_owner, self._server)
        self._startup.is_over = True
        try:
            address = await self._server.start(host, self._port)
            await self._report_snapshots()
        except BaseException:
            await self._server.stop(0)
            await state_owner.close()
            raise
        state_owner.snapshots.on_change = self._on_snapshot
        return address

    async def _recovered(self, data: Path, host: str) -> OwnerRecovery:
        """Recovers on a thread; the port is open meanwhile if the process around it wants that."""
        machine, now_ms, listening = self._definition.machine, system_clock().wall_ms(), self._host.listening

        def recover(progress: Progress) -> OwnerRecovery:
            with _explained(data):
                return OwnerRecovery.of(
                    machine,
                    data,
                    now_ms=now_ms,
                    snapshots=self._snapshots,
                    progress=progress,
                    open_disk=self._host.open_disk,
                )

        async def listen() -> None:
            address = await self._server.listen(host, self._port)
            if listening is not None:
                listening(address)

        return await recover_behind_ports(
            self._startup,
            recover,
            open_ports=listen,
            close_ports=lambda: self._server.stop(0),
            discard=lambda recovery: recovery.recovered.journal.close(),
            is_early=listening is not None,
        )

    async def _serving(self, recovery: OwnerRecovery | None) -> StateOwner:
        data, command = self._data, self._host.snapshot_command
        try:
            with _explained(data):
                return StateOwner.over(
                    self._definition.machine,
                    recovery,
                    clock=system_clock(),
                    loop=asyncio.get_running_loop(),
                    fatal=self._host.fatal,
                    snapshots=self._snapshots,
                    command=command(data) if data is not None and command is not None else None,
                )
        except BaseException:
            await self._server.stop(0)
            if recovery is not None:
                recovery.recovered.journal.close()
            raise

    def _on_snapshot(self) -> None:
        report = asyncio.create_task(self._report_snapshots())
        self._reports.add(report)
        report.add_done_callback(self._reports.discard)

    async def _report_snapshots(self) -> None:
        """Reports the health of snapshots, which gateways show."""
        await self._server.report(SNAPSHOTS_HEALTH, is_well=not self._state_owner.snapshots.failed_in_a_row)

    def give_up(self) -> None:
        """Ends the recovery at its next step."""
        self._startup.stop()

    async def stop(self) -> None:
        """Answers calls in progress, makes decided events durable, and closes the journal."""
        await self._server.stop(GRACE_S)
        await self._state_owner.close()


def full_name(service: str) -> str:
    """Returns the full name of the service on the wire."""
    return pb.DESCRIPTOR.services_by_name[service].full_name


@contextlib.contextmanager
def _explained(data: Path | None) -> Iterator[None]:
    """Raises an error of the system as one that says what to do."""
    try:
        yield
    except OSError as error:
        raise FailedPreconditionError(
            f"{str(data)!r} cannot be the data directory: {error.strerror or error};"
            " choose another, or make it a directory that this user may write",
            reason="DATA_UNUSABLE",
        ) from error
