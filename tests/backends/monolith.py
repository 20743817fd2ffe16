"""Three nodes, each a process of its own, with a client that finds the owners and workers that work for all."""

import asyncio

from holdfast.backends.ports import AdminApi, FeedApi, JobApi, ScheduleApi, WorkApi
from holdfast.client.routed import RoutedJobs
from holdfast.client.routed_work import RoutedWork
from holdfast.testing.conformance.harness import Capability, Terms
from tests.backends.lending import Lender
from tests.e2e.fleet import Fleet
from tests.e2e.nodes import NodeSet


class NodeSets(Lender[NodeSet]):
    """Processes of nodes."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self._fleet = fleet
        self._count = 0

    def new(self, lease_ms: int, *, is_kept: bool = True) -> NodeSet:
        self._count += 1
        options = ("--lease-ms", str(lease_ms), "--worker-timeout-ms", "3600000", "--log-level", "error")
        nodes = NodeSet(self._fleet, self._fleet.folder / f"data-{self._count}", *options)
        nodes.start()
        return nodes


class Monolith:
    """One test's connections to all nodes."""

    def __init__(self, sets: NodeSets) -> None:
        self._sets = sets
        self._nodes: NodeSet
        self._routed: RoutedJobs
        self._terms = Terms()

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
        self._terms = terms
        self._nodes = await asyncio.to_thread(self._sets.lend, terms)
        self._routed = RoutedJobs(self._nodes.addresses)

    async def stop(self) -> None:
        await self._routed.close()
        self._sets.give_back(self._terms, self._nodes)

    async def restart(self) -> None:
        await self._routed.close()
        await asyncio.to_thread(self._sets.restart, self._terms, self._nodes)
        self._routed = RoutedJobs(self._nodes.addresses)

    async def advance(self, ms: int) -> None:
        raise NotImplementedError
