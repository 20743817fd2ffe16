"""Three node processes, with a client that routes to the owners and workers that take jobs of all nodes."""

import asyncio

from holdfast.client.routed_jobs import RoutedJobs
from holdfast.client.routed_work import RoutedWork
from holdfast.core.capabilities import MONOLITH, Capabilities
from holdfast.ports import (
    AdminApi,
    CapabilityApi,
    FeedApi,
    Introduction,
    JobApi,
    ScheduleApi,
    WorkApi,
    WorkSession,
)
from holdfast.testing.conformance.harness import Control, Need, Terms
from tests.backends.process_pool import Lender
from tests.e2e.fleet import Fleet
from tests.e2e.nodes import NodeSet


class NodeSets(Lender[NodeSet]):
    """Pool of node processes."""

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


class Cuttable:
    """Work API whose sessions a test can close together with the nodes; by themselves they would reconnect."""

    def __init__(self, work: WorkApi) -> None:
        self._work = work
        self._sessions: list[WorkSession] = []

    async def open(self, introduction: Introduction) -> WorkSession:
        """Opens a session and keeps a reference to it."""
        session = await self._work.open(introduction)
        self._sessions.append(session)
        return session

    async def cut(self) -> None:
        """Closes all sessions while no node is running."""
        for session in self._sessions:
            await session.close()


class Monolith:
    """The connections of one test to all nodes."""

    def __init__(self, sets: NodeSets) -> None:
        self._sets = sets
        self._work: Cuttable
        self._nodes: NodeSet
        self._routed: RoutedJobs
        self._terms = Terms()

    @property
    def declared(self) -> Capabilities:
        return MONOLITH

    @property
    def beyond(self) -> frozenset[Need]:
        return frozenset({Control.RESTART})

    @property
    def backend(self) -> CapabilityApi:
        return self._routed

    @property
    def jobs(self) -> JobApi:
        return self._routed

    @property
    def work(self) -> WorkApi:
        return self._work

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
        self._work = Cuttable(RoutedWork(self._nodes.addresses))
        self._routed = RoutedJobs(self._nodes.addresses)

    async def stop(self) -> None:
        await self._routed.close()
        self._sets.give_back(self._terms, self._nodes)

    async def restart(self) -> None:
        await self._routed.close()
        await asyncio.to_thread(self._nodes.kill)
        await self._work.cut()
        await asyncio.to_thread(self._sets.restart, self._terms, self._nodes)
        self._routed = RoutedJobs(self._nodes.addresses)

    async def advance(self, ms: int) -> None:
        raise NotImplementedError
