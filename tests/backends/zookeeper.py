"""Nodes of a real ZooKeeper: clients and workers are its clients, with no server of Holdfast in between."""

import asyncio
from pathlib import Path

from holdfast.core.capabilities import Capabilities
from holdfast.ports import AdminApi, CapabilityApi, FeedApi, JobApi, ScheduleApi, WorkApi
from holdfast.testing.conformance.harness import Control, Need, Terms
from holdfast.topologies.zookeeper import ZOOKEEPER
from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection, connect
from holdfast.topologies.zookeeper.backend.ensemble_client import EnsembleClient
from holdfast.topologies.zookeeper.backend.job_api import NodeJobs
from holdfast.topologies.zookeeper.backend.steward import Steward
from holdfast.topologies.zookeeper.backend.work_api import BidWork
from holdfast.topologies.zookeeper.private_ensemble import PrivateZooKeeper
from tests.zookeeper import TICK_MS, fresh_root, require_zookeeper

#: Longer than a pause of a busy machine: sessions do not expire here; leases end by the worker's own clock.
_SESSION_MS = 30_000


class ZooKeeperSets:
    """A server that tests share, started for the first test and ended after the last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shared: PrivateZooKeeper | None = None
        self._root = fresh_root("shared")

    def shared(self) -> PrivateZooKeeper:
        """The shared server; tests run one at a time, so a restart disturbs no other test."""
        if self._shared is None:
            require_zookeeper()
            self._shared = PrivateZooKeeper(self._folder / "shared", 1, TICK_MS, is_synced=False)
            self._shared.start()
        return self._shared

    def root(self, terms: Terms) -> str:
        """The root of a test's jobs: shared with other tests unless the test needs an empty one."""
        return fresh_root() if terms.is_alone else self._root

    def end(self) -> None:
        """Stops the server."""
        if self._shared is not None:
            self._shared.stop()


async def _connect(hosts: str, root: str, lease_ms: int) -> EnsembleConnection:
    return await connect(hosts, root, session_ms=max(lease_ms, _SESSION_MS))


class Bidders:
    """The sessions of one test; a lease lasts as long as its worker's session and heartbeats."""

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
        return EnsembleClient(self._connection)

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
        return EnsembleClient(self._connection)

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
