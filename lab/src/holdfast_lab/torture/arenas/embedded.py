"""The embedded topology: one ledger server, and two workers that reach it through separate proxies.

The arena starts the server and the workers itself, so that each can be killed alone, and replaces killed ones. If run
as root, the second worker has its own network namespace (an island).
"""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from holdfast_lab.history.records import Record
from holdfast_lab.measure.reserved_ports import Ports, port_of
from holdfast_lab.torture.arenas import ledger_facts
from holdfast_lab.torture.arenas.archive import Archives
from holdfast_lab.torture.arenas.arena_folder import ArenaFolder
from holdfast_lab.torture.arenas.client_proxies import ClientProxies
from holdfast_lab.torture.arenas.options import LEDGER, LOGGING, UNLIMITED, WORKER, options_of
from holdfast_lab.torture.arenas.own_arena import OwnArena
from holdfast_lab.torture.arenas.programs import ArenaPrograms
from holdfast_lab.torture.arenas.restarted_program import RestartedProgram
from holdfast_lab.torture.faults import namespaces
from holdfast_lab.torture.faults.namespaces import Namespace
from holdfast_lab.torture.ports import ArenaClock, Disk, Engine, NetworkNamespace, Proxy

_ISLANDER = "worker-2"
_LEDGER = "ledger"


class EmbeddedArena(OwnArena):
    """Implements the ports `Arena` and `NamespacedArena`."""

    topology = "embedded"
    keeps = frozenset({"grants", "order", "ticks"})
    results_apart = False
    has_schedules = True

    def __init__(self, folder: Path, app: str) -> None:
        self._arena_folder = ArenaFolder(folder, app, has_small_disk=True)
        self.folder = self._arena_folder.folder
        self._ports = Ports(6)
        self._server, self._http, *proxies = self._ports.addresses
        self._namespace = None if namespaces.lacking() else Namespace()
        self.islands: Mapping[str, NetworkNamespace] = {}
        if self._namespace is not None:
            self.islands = {_ISLANDER: self._namespace}
            proxies[3] = f"{self._namespace.outside}:{port_of(proxies[3])}"
        self._clients, self._workers = ClientProxies(proxies[:2]), ClientProxies(proxies[2:])
        self.grpc, self.http = proxies[:2]
        self.proxies: Mapping[str, Proxy] = {"clients": self._clients, "workers": self._workers}
        self.engines: Sequence[Engine] = ()
        self.clock: ArenaClock | None = self._arena_folder.clock
        self.disk: Disk | None = self._arena_folder.disk
        workers = [self._worker(number, road) for number, road in enumerate(self._workers.places, 1)]
        self._programs = ArenaPrograms(self._arena_folder.expected_exits, [self._serving()], workers)
        self._archives = Archives(self._arena_folder.archive)

    async def start(self) -> None:
        """Returns once jobs can be submitted and are run."""
        await self._clients.open([self._server, self._http])
        await self._workers.open([self._http] * len(self._workers.places))  # the port of the wire
        await self._programs.start()
        self._archives.open({_LEDGER: self._arena_folder.data})

    def _serving(self) -> RestartedProgram:
        port, http_port = port_of(self._server), port_of(self._http)
        arguments = [
            *("server", "--data", str(self._arena_folder.data), "--port", port, "--http-port", http_port),
            *options_of(LEDGER, UNLIMITED, LOGGING),
        ]
        return self._arena_folder.program("server", "server", arguments)

    def _worker(self, number: int, road: str) -> RestartedProgram:
        name = f"worker-{number}"
        arguments = ["worker", "-A", self._arena_folder.app, "--connect", road, *options_of(WORKER, LOGGING)]
        if self._namespace is not None and name == _ISLANDER:
            return self._arena_folder.program("worker", name, arguments, self._namespace.command)
        return self._arena_folder.program("worker", name, arguments)

    async def stop(self) -> None:
        """Stops the workers first, so that the server receives their reports; keeps the data of the small disk."""
        async with AsyncExitStack() as ends:  # run every step, even if others fail
            ends.callback(self._arena_folder.close)
            ends.callback(self._ports.close)
            if self._namespace is not None:
                ends.callback(self._namespace.close)
            ends.push_async_callback(self._workers.close)
            ends.push_async_callback(self._clients.close)
            ends.push_async_callback(self._archives.close)
            await self._programs.stop()

    def facts(self) -> list[Record]:
        """Reads the facts from the journal."""
        return ledger_facts.read(self._arena_folder.data, _LEDGER, self._archives.of(_LEDGER))

    def trimmed(self) -> int:
        """Returns how many segments of the journal the server has removed."""
        return self._archives.trimmed()
