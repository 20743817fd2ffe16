"""Nodes of a cluster inside the test's own process, over a real database."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path

from holdfast.settings import Settings
from holdfast.topologies.cluster.database.address import DatabaseAddress
from holdfast.topologies.cluster.database.cluster_database import ClusterDatabase
from holdfast.topologies.cluster.database.creation import create_cluster
from holdfast.topologies.cluster.node import ClusterNode, NodeIdentity, wire_address
from tests.integration.database_proxy import Way

#: Long enough for a busy machine, short enough for a test that waits for its end.
LEASE_MS = 1_500
_PATIENCE_S = 60.0


class Nodes:
    """The running nodes of one cluster."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._running: dict[str, ClusterNode] = {}
        #: The way of each node to the database.
        self._ways: dict[str, Way] = {}

    def __getitem__(self, name: str) -> ClusterNode:
        return self._running[name]

    async def start(self, *names: str) -> None:
        """Starts nodes; returns when every shard has a leader that all of them know."""
        for name in names:
            address = DatabaseAddress(url=(await self._way(name)).url, limit_ms=LEASE_MS // 2)
            database = ClusterDatabase(address, await asyncio.to_thread(create_cluster, address))
            settings = Settings(data=str(self._folder / name), port=0, http_port=0, log_level="error")
            identity = NodeIdentity(name, LEASE_MS)
            node = ClusterNode(settings, identity, database, _no_snapshots, BytesIO())
            await node.start()
            self._running[name] = node
        await within(asyncio.gather(*(self._running[name].until_led() for name in names)))

    async def _way(self, name: str) -> Way:
        folder = self._folder / f"way-{name}"
        folder.mkdir()
        self._ways[name] = way = Way(self._url, folder)
        await way.open()
        return way

    async def cut_off(self, name: str) -> None:
        """Cuts a node off from its database."""
        await self._ways[name].close()

    async def let_back(self, name: str) -> None:
        """Ends the cut."""
        await self._ways[name].open()

    async def stop(self, name: str) -> None:
        """Stops a node, which hands its shards over."""
        await self._running.pop(name).stop(_PATIENCE_S)

    async def stop_all(self) -> None:
        """Stops all nodes; the last one has no successor."""
        running, self._running = self._running, {}
        for node in running.values():
            await node.stop(0.5)
        for way in self._ways.values():
            await way.close()

    def addresses(self) -> list[str]:
        """The addresses for our own clients."""
        return [wire_address(node.addresses) for node in self._running.values()]

    async def settled_leader(self, shard: int = 0) -> str:
        """The name of the node that serves a shard, once one does and no shard has to move for balance."""
        await until(lambda: len({self.leader(one) for one in range(2)} - {""}) == min(2, len(self._running)))
        return self.leader(shard)

    def leader(self, shard: int = 0) -> str:
        """The name of the node that serves a shard; "" if none does."""
        return next((name for name, node in self._running.items() if node.service(shard) is not None), "")


@asynccontextmanager
async def nodes_of(url: str, folder: Path) -> AsyncIterator[Nodes]:
    """Stops all nodes at the end of the block."""
    nodes = Nodes(url, folder)
    try:
        yield nodes
    finally:
        await nodes.stop_all()


async def within(work: Awaitable[object]) -> None:
    """Waits for something that takes a moment."""
    async with asyncio.timeout(_PATIENCE_S):
        await work


async def until(is_so: Callable[[], object]) -> None:
    """Waits for a condition without an event."""
    async with asyncio.timeout(_PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - conditions of several nodes have no common event
            await asyncio.sleep(0.005)


def _no_snapshots(shard: int, bytes_held: int) -> list[str]:
    raise AssertionError(f"shard {shard} with {bytes_held} bytes needs no snapshot")
