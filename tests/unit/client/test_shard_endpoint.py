"""The endpoint of a shard: which node a client connects to, and what it does when that node is not the leader."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast.client.blocking_transport import BlockingTransport
from holdfast.client.discovery import discover
from holdfast.client.shard_endpoint import ClusterNodes, ShardEndpoint
from holdfast.client.wire_transport import WireTransport
from holdfast.errors import UnavailableError
from holdfast.wire.messages import CALLS, NO_SHARD, NOT_LEADER, VERSION, Opened
from tests.unit.client.wire_server import Peer

SHARDS = 4


class Node:
    """A node on a port of its own; `leads` has its shards, and `names` is the leader that it names for all others."""

    def __init__(self) -> None:
        self.address = ""
        self.leads = set[int]()
        self.names = ""
        #: The shards of all openings.
        self.asked: list[int] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        try:
            opening = await peer.opening()
            self.asked.append(opening.shard)
            if opening.shard == NO_SHARD or opening.shard in self.leads:
                peer.send(Opened(VERSION, shards=SHARDS))
                await reader.read()
            else:
                peer.send(Opened(0, "UNAVAILABLE", NOT_LEADER, "another node leads", shards=SHARDS, leader=self.names))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            """The client has disconnected."""
        finally:
            writer.close()


@asynccontextmanager
async def nodes(count: int) -> AsyncIterator[list[Node]]:
    """Starts nodes that lead nothing."""
    made, servers = [Node() for _ in range(count)], []
    for node in made:
        server = await asyncio.start_server(node.serve, "127.0.0.1", 0)
        node.address = "{}:{}".format(*server.sockets[0].getsockname())
        servers.append(server)
    try:
        yield made
    finally:
        for server in servers:
            server.close()


async def connected(endpoint: ShardEndpoint) -> None:
    """Connects and closes the connection."""
    transport = await WireTransport.connect(endpoint)
    await transport.close()


async def test_client_follows_the_name_of_the_leader() -> None:
    """A node that does not lead the shard names the leader, and the client connects there."""
    async with nodes(2) as (follower, leader):
        follower.names, leader.leads = leader.address, {3}
        await connected(ShardEndpoint(ClusterNodes([follower.address]), 3))
        assert (follower.asked, leader.asked) == ([3], [3])


async def test_leader_is_remembered() -> None:
    """The next connection goes to the leader at once."""
    async with nodes(2) as (follower, leader):
        follower.names, leader.leads = leader.address, {3}
        endpoint = ShardEndpoint(ClusterNodes([follower.address]), 3)
        await connected(endpoint)
        await connected(endpoint)
        assert (follower.asked, leader.asked) == ([3], [3, 3])


async def test_blocking_client_follows_too() -> None:
    """A connection on the caller's own thread is to the leader as well."""
    async with nodes(2) as (follower, leader):
        follower.names, leader.leads = leader.address, {0}
        endpoint = ShardEndpoint(ClusterNodes([follower.address]), 0)
        transport = await asyncio.to_thread(BlockingTransport.connect, endpoint)
        transport.drop()
        assert (follower.asked, leader.asked) == ([0], [0])


async def test_shard_without_a_leader_is_unavailable() -> None:
    """If no node is named, the client is told so at once, and may try again."""
    async with nodes(1) as (node,):
        with pytest.raises(UnavailableError, match="another node leads") as raised:
            await connected(ShardEndpoint(ClusterNodes([node.address]), 1))
        assert raised.value.reason == NOT_LEADER
        assert node.asked == [1]


async def test_node_that_knows_no_leader_is_passed_over() -> None:
    """A node that is cut off from its cluster names no leader, and the client asks another one."""
    async with nodes(2) as (lonely, leader):
        leader.leads = {1}
        known = ClusterNodes([lonely.address, leader.address])
        known.led(1, lonely.address)
        await connected(ShardEndpoint(known, 1))
        assert (lonely.asked, leader.asked) == ([1], [1])


async def test_nodes_that_disagree_keep_no_client_busy() -> None:
    """Two nodes that name each other are asked a limited number of times."""
    async with nodes(2) as (one, other):
        one.names, other.names = other.address, one.address
        with pytest.raises(UnavailableError):
            await connected(ShardEndpoint(ClusterNodes([one.address]), 1))
        assert len(one.asked + other.asked) == 4


async def test_silent_node_is_passed_over() -> None:
    """A client goes on to the next node if one does not answer, and prefers those that did from then on."""
    async with nodes(1) as (node,):
        node.leads = {2}
        known = ClusterNodes(["127.0.0.1:1", node.address])
        known.led(2, "127.0.0.1:1")
        await connected(ShardEndpoint(known, 2))
        assert known.candidates(2)[0] == node.address


async def test_error_names_all_nodes_if_none_answers() -> None:
    """If no node answers, the error says where the client has looked."""
    with pytest.raises(UnavailableError, match=r"no node of the cluster answers at 127\.0\.0\.1:1,127\.0\.0\.1:2"):
        await connected(ShardEndpoint(ClusterNodes(["127.0.0.1:1", "127.0.0.1:2"]), 0))


async def test_discovery_counts_the_shards_of_a_cluster() -> None:
    """Any node tells the number of shards; the addresses may be some of the nodes only."""
    async with nodes(1) as (node,):
        places = await discover(["127.0.0.1:1", node.address])
        assert len(places.names) == SHARDS
        assert places.are_replaced


async def test_discovery_leaves_other_servers_as_they_are() -> None:
    """The addresses of servers without shards are the places themselves, in their order."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        assert (await peer.opening()).purpose == CALLS
        peer.send(Opened(VERSION))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = "{}:{}".format(*server.sockets[0].getsockname())
    places = await discover([address, "127.0.0.1:1"])
    server.close()
    assert list(places.names) == [address, "127.0.0.1:1"]
    assert not places.are_replaced
