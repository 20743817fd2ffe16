"""The zookeeper topology: an ensemble of three servers, a gateway for clients, and two workers that bid.

`holdfast up` would start one worker; here there are two, so that one can take over what the other had, and every server
of the ensemble can be broken alone. So the arena starts each of them itself, and replaces whoever is killed.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from holdfast.lab.history.records import DamageFact, Record
from holdfast.lab.torture.arenas import zookeeper_facts
from holdfast.lab.torture.arenas.clocks import ShortClock
from holdfast.lab.torture.arenas.company import Company
from holdfast.lab.torture.arenas.engine_log import EngineLog
from holdfast.lab.torture.arenas.grounds import Grounds
from holdfast.lab.torture.arenas.options import LEASE_MS, LOGGING, UNLIMITED, WORKER, options_of
from holdfast.lab.torture.arenas.own_arena import OwnArena
from holdfast.lab.torture.arenas.places import Ports, port_of
from holdfast.lab.torture.arenas.roads import Roads
from holdfast.lab.torture.arenas.zookeeper_engine import EnsembleEngines
from holdfast.lab.torture.ports import Clockwork, Disk, Engine, Proxy

_ROOT = "/holdfast"
_WORKERS = 2


class ZooKeeperArena(OwnArena):
    """Implements the port `Arena`."""

    topology = "zookeeper"
    #: Of the leases of a job only the last is kept, and how many there were.
    keeps: frozenset[str] = frozenset()
    results_apart = False
    has_schedules = False

    def __init__(self, folder: Path, app: str) -> None:
        self._grounds = Grounds(folder, app, has_small_disk=False)
        self.folder = self._grounds.folder
        self._log = EngineLog(self._grounds.logs / "engines.txt")
        self._ensemble = EnsembleEngines(self._grounds.data / "zookeeper", self._grounds.deaths)
        self.engines: Sequence[Engine] = self._ensemble.servers
        self._hosts = ""
        self._ports = Ports(4)
        self._doors, roads = self._ports.addresses[:2], self._ports.addresses[2:]
        self._roads = Roads(roads)
        self.grpc, self.http = roads
        self.proxies: Mapping[str, Proxy] = {"clients": self._roads}
        self.clock: Clockwork | None = ShortClock(self._grounds.clock)
        self.disk: Disk | None = None
        port, http_port = map(port_of, self._doors)
        gateway = ["zookeeper", "gateway", "--port", port, "--http-port", http_port, *options_of(UNLIMITED, LOGGING)]
        worker = ["worker", "-A", app, *options_of(WORKER, LOGGING)]
        workers = [
            self._grounds.program("worker", f"worker-{number}", worker, may_refuse=True)
            for number in range(1, _WORKERS + 1)
        ]
        gateways = [self._grounds.program("gateway", "gateway", gateway, may_refuse=True)]
        self._company = Company(self._grounds.deaths, gateways, workers, may_refuse=True)
        self._facts: list[Record] = []

    async def start(self) -> None:
        """Returns once jobs can be submitted and are run."""
        self._log.open()
        self._hosts = await self._ensemble.start()
        place = f"{self._hosts}{_ROOT}"
        for program in self._company.programs:
            program.tell(HOLDFAST_ENSEMBLE=place, HOLDFAST_CONNECT=f"zk://{place}?lease_ms={LEASE_MS}")
        await self._roads.open(self._doors)
        await self._company.start()

    def strange(self) -> list[str]:
        """What went wrong that no fault explains."""
        self._ensemble.notice()
        return super().strange()

    async def stop(self) -> None:
        """The ensemble last: once everybody else has ended, it is asked what it has."""
        async with AsyncExitStack() as ends:  # each, whatever becomes of the others
            ends.callback(self._log.close)
            ends.push_async_callback(self._ensemble.stop)
            ends.callback(self._ports.close)
            ends.push_async_callback(self._roads.close)
            await self._company.stop()
            if self._hosts:
                self._facts = await asyncio.to_thread(self._read)

    def _read(self) -> list[Record]:
        try:
            return zookeeper_facts.read(self._hosts, _ROOT)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what was found
            return [DamageFact(f"the ensemble cannot be read: {error!r}")]

    def facts(self) -> list[Record]:
        """What the nodes said when the last one had ended."""
        return self._facts
