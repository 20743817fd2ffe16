"""The places behind the addresses of a URL: one server, the nodes of a monolith, or the shards of a cluster.

The first node that answers tells whether it belongs to a cluster. The addresses of a monolith are all of its nodes, in
their order; those of a cluster are some of its nodes, in any order.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from holdfast.client.access import NO_CREDENTIALS, Access
from holdfast.client.endpoints import Endpoint, TcpEndpoint
from holdfast.client.retry_policy import RETRYABLE
from holdfast.client.shard_endpoint import ClusterNodes, ShardEndpoint
from holdfast.client.wire_line import open_line
from holdfast.errors import HoldfastError, UnavailableError
from holdfast.wire.messages import CALLS

#: Returns the endpoint of a place.
EndpointOf = Callable[[str, Access], Endpoint]


class Places(msgspec.Struct, frozen=True):
    """The places that own the keys, in the order that determines the owners."""

    names: Sequence[str]
    endpoint: EndpointOf = TcpEndpoint
    #: Whether a place that is lost has a successor soon.
    are_replaced: bool = False


async def discover(addresses: Sequence[str], access: Access = NO_CREDENTIALS) -> Places:
    """Asks all servers at once, and takes the first answer.

    Raises an error that another attempt would meet too, or `UnavailableError` with all addresses if none answers.
    """
    asking = [asyncio.ensure_future(_shards_at(TcpEndpoint(address, access))) for address in addresses]
    try:
        for answer in asyncio.as_completed(asking):
            try:
                shards = await answer
            except HoldfastError as error:
                if error.code not in RETRYABLE:
                    raise
            else:
                return shards_of(addresses, shards, access) if shards else Places(addresses)
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    raise missing(addresses)


def shards_of(addresses: Sequence[str], shards: int, access: Access) -> Places:
    """Returns the places of a cluster's shards."""
    nodes = ClusterNodes(addresses, access)
    names = [f"shard {shard} of the cluster at {nodes.where}" for shard in range(shards)]
    indexes = {name: shard for shard, name in enumerate(names)}
    return Places(names, lambda name, _: ShardEndpoint(nodes, indexes[name]), are_replaced=True)


async def _shards_at(endpoint: Endpoint) -> int:
    """Returns the number of shards of the node's cluster; 0 if it belongs to none."""
    line = await open_line(endpoint, CALLS, _ignore, _nothing)
    shards = line.opened.result().shards
    line.drop()
    await line.closed.wait()
    return shards


def missing(addresses: Sequence[str]) -> UnavailableError:
    """The error for an incomplete answer, because these nodes do not answer."""
    who = ", ".join(addresses)
    verb = "does" if len(addresses) == 1 else "do"
    return UnavailableError(
        f"{who} {verb} not answer, and some of the jobs are stored there; connect to a single node to see its jobs",
        reason="NODES_MISSING",
        details={"nodes": who},
    )


def _ignore(message: bytes) -> None:
    del message


def _nothing() -> None:
    """Does nothing."""
