"""The zookeeper topology: an ensemble of three servers, a gateway for clients, and two workers that bid.

`holdfast up` would start one worker. Here there are two, so that one can take over the jobs of the other, and every
server of the ensemble can be broken alone. So the arena starts each process itself, and replaces killed ones.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from holdfast_lab.history.records import DamageFact, Record
from holdfast_lab.measure.reserved_ports import Ports, port_of
from holdfast_lab.torture.arenas import zookeeper_facts
from holdfast_lab.torture.arenas.arena_folder import ArenaFolder
from holdfast_lab.torture.arenas.client_proxies import ClientProxies
from holdfast_lab.torture.arenas.clocks import ShortClock
from holdfast_lab.torture.arenas.engine_log import EngineLog
from holdfast_lab.torture.arenas.options import LEASE_MS, LOGGING, UNLIMITED, WORKER, options_of
from holdfast_lab.torture.arenas.own_arena import OwnArena
from holdfast_lab.torture.arenas.programs import ArenaPrograms
from holdfast_lab.torture.arenas.zookeeper_engine import EnsembleEngines
from holdfast_lab.torture.ports import ArenaClock, Disk, Engine, Proxy

_ROOT = "/holdfast"
_WORKERS = 2


class ZooKeeperArena(OwnArena):
    """Implements the port `Arena`."""

    topology = "zookeeper"
    #: The store keeps only the last lease of a job, and the number of its leases.
    keeps: frozenset[str] = frozenset()
    results_apart = False
    has_schedules = False

    def __init__(self, folder: Path, app: str) -> None:
        self._arena_folder = ArenaFolder(folder, app, has_small_disk=False)
        self.folder = self._arena_folder.folder
        self._log = EngineLog(self._arena_folder.logs / "engines.txt")
        self._ensemble = EnsembleEngines(self._arena_folder.data / "zookeeper", self._arena_folder.expected_exits)
        self.engines: Sequence[Engine] = self._ensemble.servers
        self._hosts = ""
        self._ports = Ports(4)
        self._doors, proxies = self._ports.addresses[:2], self._ports.addresses[2:]
        self._proxies = ClientProxies(proxies)
        self.grpc, self.http = proxies
        self.proxies: Mapping[str, Proxy] = {"clients": self._proxies}
        self.clock: ArenaClock | None = ShortClock(self._arena_folder.clock)
        self.disk: Disk | None = None
        port, http_port = map(port_of, self._doors)
        gateway = ["zookeeper", "gateway", "--port", port, "--http-port", http_port, *options_of(UNLIMITED, LOGGING)]
        worker = ["worker", "-A", app, *options_of(WORKER, LOGGING)]
        workers = [
            self._arena_folder.program("worker", f"worker-{number}", worker, may_refuse=True)
            for number in range(1, _WORKERS + 1)
        ]
        gateways = [self._arena_folder.program("gateway", "gateway", gateway, may_refuse=True)]
        self._programs = ArenaPrograms(self._arena_folder.expected_exits, gateways, workers, may_refuse=True)
        self._facts: list[Record] = []

    async def start(self) -> None:
        """Returns once jobs can be submitted and are run."""
        self._log.open()
        self._hosts = await self._ensemble.start()
        place = f"{self._hosts}{_ROOT}"
        for program in self._programs.programs:
            program.tell(HOLDFAST_ENSEMBLE=place, HOLDFAST_CONNECT=f"zk://{place}?lease_ms={LEASE_MS}")
        await self._proxies.open(self._doors)
        await self._programs.start()

    def strange(self) -> list[str]:
        """Returns problems that no fault explains."""
        self._ensemble.notice()
        return super().strange()

    async def stop(self) -> None:
        """Stops the ensemble last; reads the facts from it before, when all other processes have ended."""
        async with AsyncExitStack() as ends:  # run every step, even if others fail
            ends.callback(self._log.close)
            ends.push_async_callback(self._ensemble.stop)
            ends.callback(self._ports.close)
            ends.push_async_callback(self._proxies.close)
            await self._programs.stop()
            if self._hosts:
                self._facts = await asyncio.to_thread(self._read)

    def _read(self) -> list[Record]:
        try:
            return zookeeper_facts.read(self._hosts, _ROOT)
        except Exception as error:  # noqa: BLE001 - any error means that the store is damaged
            return [DamageFact(f"the ensemble cannot be read: {error!r}")]

    def facts(self) -> list[Record]:
        """Returns the facts that were read when all other processes had ended."""
        return self._facts
