"""Nodes of a real ZooKeeper: clients and workers ask it themselves, with no server of ours in between."""

import asyncio
from pathlib import Path

from holdfast.core.capabilities import ZOOKEEPER, Capabilities
from holdfast.core.history import Entry
from holdfast.ports import AdminApi, CapabilityApi, FeedApi, JobApi, ScheduleApi, WorkApi
from holdfast.testing.conformance.harness import Control, Need, Terms
from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection, connect
from holdfast.topologies.zookeeper.backend.job_api import NodeJobs
from holdfast.topologies.zookeeper.backend.steward import Steward
from holdfast.topologies.zookeeper.backend.work_api import BidWork
from holdfast.topologies.zookeeper.client_api import BiddingJobs
from holdfast.topologies.zookeeper.ensemble_url import Ensemble
from holdfast.topologies.zookeeper.private_ensemble import PrivateZooKeeper
from holdfast.topologies.zookeeper.unsupported import NoFeed
from tests.zookeeper import TICK_MS, fresh_root, require_zookeeper

#: Longer than a machine that has other things to do stands still: only leases run out here, by their own clock.
_SESSION_MS = 30_000


class ZooKeeperSets:
    """A server that tests share, started when the first one asks and ended after the last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shared: PrivateZooKeeper | None = None
        self._root = fresh_root("shared")

    def shared(self) -> PrivateZooKeeper:
        """Tests come one at a time, so that whoever restarts it disturbs nobody."""
        if self._shared is None:
            require_zookeeper()
            self._shared = PrivateZooKeeper(self._folder / "shared", 1, TICK_MS, is_synced=False)
            self._shared.start()
        return self._shared

    def root(self, terms: Terms) -> str:
        """Where the jobs of a test are: with those of others, unless it wants to be alone."""
        return fresh_root() if terms.is_alone else self._root

    def end(self) -> None:
        """Leaves no process behind."""
        if self._shared is not None:
            self._shared.stop()


async def _connect(hosts: str, root: str, lease_ms: int) -> EnsembleConnection:
    return await connect(hosts, root, session_ms=max(lease_ms, _SESSION_MS))


class _History(NoFeed):
    """What of a feed an ensemble has."""

    def __init__(self, jobs: NodeJobs) -> None:
        self._jobs = jobs

    async def history(self, job_id: str) -> list[Entry]:
        return await self._jobs.history(job_id)


class Bidders:
    """One test's sessions. A lease lasts as long as the session of its worker, or as its runtime says that it lives."""

    def __init__(self, sets: ZooKeeperSets) -> None:
        self._sets = sets
        self._server: PrivateZooKeeper
        self._root: str
        self._connection: EnsembleConnection
        self._steward: Steward
        self._jobs: NodeJobs
        self._terms = Terms()

    @property
    def declared(self) -> Capabilities:
        return ZOOKEEPER

    @property
    def beyond(self) -> frozenset[Need]:
        return frozenset({Control.RESTART})

    @property
    def backend(self) -> CapabilityApi:
        return BiddingJobs(Ensemble(hosts=self._server.hosts, root=self._root))

    @property
    def jobs(self) -> JobApi:
        return self._jobs

    @property
    def work(self) -> WorkApi:
        return BidWork(self._server.hosts, self._root, session_ms=self._terms.lease_ms, connecting=_connect)

    @property
    def admin(self) -> AdminApi:
        raise NotImplementedError

    @property
    def feed(self) -> FeedApi:
        return _History(self._jobs)

    @property
    def schedules(self) -> ScheduleApi:
        raise NotImplementedError

    async def start(self, terms: Terms) -> None:
        self._terms = terms
        self._server = await asyncio.to_thread(self._sets.shared)
        self._root = self._sets.root(terms)
        await self._connect()

    async def _connect(self) -> None:
        self._connection = await connect(self._server.hosts, self._root, session_ms=_SESSION_MS)
        self._jobs = NodeJobs(self._connection)
        self._steward = Steward(self._connection)
        await self._steward.start()

    async def stop(self) -> None:
        await self._steward.stop()
        await self._connection.close()

    async def restart(self) -> None:
        await asyncio.to_thread(self._server.kill, 0)
        self._server.start_server(0)
        await asyncio.to_thread(self._server.serving, 0)

    async def advance(self, ms: int) -> None:
        raise NotImplementedError
