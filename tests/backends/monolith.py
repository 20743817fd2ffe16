"""Three nodes, each a process of its own, with a client that finds the owners and workers that work for all."""

import asyncio
from pathlib import Path

from holdfast.backends.ports import AdminApi, FeedApi, JobApi, ScheduleApi, WorkApi
from holdfast.client.routed import RoutedJobs
from holdfast.client.routed_work import RoutedWork
from holdfast.testing.conformance.harness import Capability, Terms
from tests.e2e.fleet import Fleet
from tests.e2e.nodes import NodeSet


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
        options = ("--lease-ms", str(lease_ms), "--worker-timeout-ms", "3600000", "--log-level", "error")
        nodes = NodeSet(self._fleet, self._fleet.folder / f"data-{self._count}", *options)
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
