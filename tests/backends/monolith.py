"""Three nodes, each a process of its own, with a client that finds the owners and workers that work for all."""

import asyncio
from pathlib import Path

from holdfast.backends.ports import AdminApi, FeedApi, JobApi, ScheduleApi, WorkApi
from holdfast.client.routed import RoutedJobs
from holdfast.client.routed_work import RoutedWork
from holdfast.testing.conformance.harness import Capability, Terms
from tests.e2e.fleet import Fleet, Program, stable_port

NODES = 3


class NodeSet:
    """The nodes, and the directories and ports that they keep."""

    def __init__(self, fleet: Fleet, data: Path, lease_ms: int, nodes: int = NODES) -> None:
        self._fleet = fleet
        self._data = data
        self._lease_ms = lease_ms
        ports: set[int] = set()
        while len(ports) < nodes:
            ports.add(stable_port())
        self.addresses = [f"127.0.0.1:{port}" for port in sorted(ports)]
        self.programs: list[Program] = []

    def start(self) -> None:
        """Waits until all are ready."""
        self.programs = [self.start_one(index) for index in range(len(self.addresses))]
        for program in self.programs:
            program.ready()

    def start_one(self, index: int) -> Program:
        """One of them, perhaps once more."""
        return self._fleet.start(
            *("node", "--index", str(index), "--nodes", str(len(self.addresses)), "--slots", "0"),
            *("--port", self.addresses[index].rpartition(":")[2], "--data", str(self._data / f"node-{index}")),
            *("--lease-ms", str(self._lease_ms), "--worker-timeout-ms", "3600000", "--log-level", "error"),
        )

    def kill(self) -> None:
        """Ends all of them as a power cut would."""
        for program in self.programs:
            program.kill()


class NodeSets:
    """Processes by the length of their leases, started when the first test asks, ended after the last."""

    def __init__(self, folder: Path) -> None:
        self._fleet = Fleet(folder)
        self._shared: dict[int, NodeSet] = {}
        self._count = 0

    def shared(self, lease_ms: int) -> NodeSet:
        """Those that other tests use too."""
        if lease_ms not in self._shared:
            self._shared[lease_ms] = self.new(lease_ms)
        return self._shared[lease_ms]

    def new(self, lease_ms: int) -> NodeSet:
        """Those of one test alone."""
        self._count += 1
        nodes = NodeSet(self._fleet, self._fleet.folder / f"data-{self._count}", lease_ms)
        nodes.start()
        return nodes

    def end(self) -> None:
        """Leaves no process behind."""
        self._fleet.end()


class Monolith:
    """One test's connections to all nodes."""

    def __init__(self, sets: NodeSets) -> None:
        self._sets = sets
        self._nodes: NodeSet
        self._routed: RoutedJobs
        self._is_alone = False

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset(Capability) - {Capability.CLOCK, Capability.FEED, Capability.ORDER}

    @property
    def jobs(self) -> JobApi:
        return self._routed

    @property
    def work(self) -> WorkApi:
        return RoutedWork(self._nodes.addresses)

    @property
    def admin(self) -> AdminApi:
        return self._routed

    @property
    def feed(self) -> FeedApi:
        return self._routed

    @property
    def schedules(self) -> ScheduleApi:
        return self._routed.schedules

    async def start(self, terms: Terms) -> None:
        self._is_alone = terms.is_alone
        choose = self._sets.new if terms.is_alone else self._sets.shared
        self._nodes = await asyncio.to_thread(choose, terms.lease_ms)
        self._routed = RoutedJobs(self._nodes.addresses)

    async def stop(self) -> None:
        await self._routed.close()
        if self._is_alone:
            self._nodes.kill()

    async def restart(self) -> None:
        await self._routed.close()
        self._nodes.kill()
        await asyncio.to_thread(self._nodes.start)
        self._routed = RoutedJobs(self._nodes.addresses)

    async def advance(self, ms: int) -> None:
        raise NotImplementedError
