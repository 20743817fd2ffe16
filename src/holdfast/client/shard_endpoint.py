"""The endpoint of one shard of a cluster: the node that leads it at the moment.

Any node of the cluster accepts a connection; one that does not lead the shard refuses it and names the leader. So a
connection is always to the leader, and a new one after a failover is to the next leader.

Invariant: an address that does not answer is tried again only after all others.
"""

import asyncio
import random
import socket
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.client.access import NO_CREDENTIALS, Access
from holdfast.client.endpoints import TcpEndpoint
from holdfast.errors import UnavailableError

P = TypeVar("P", bound=asyncio.BaseProtocol)


class ClusterNodes:
    """The addresses of a cluster's nodes, and the leader of each shard as far as it is known; for any thread."""

    def __init__(self, addresses: Sequence[str], access: Access = NO_CREDENTIALS) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._endpoints = {address: self._endpoint(address) for address in addresses}
        self._leaders: dict[int, str] = {}
        # Clients that start together do not all begin with the same node.
        self._order = random.sample(sorted(self._endpoints), len(self._endpoints))

    @property
    def token(self) -> str:
        """The token for every node."""
        return self._access.token

    @property
    def where(self) -> str:
        """All addresses, for messages."""
        return ",".join(self._endpoints)

    def endpoint(self, address: str) -> TcpEndpoint:
        """Returns the endpoint of a node, which may be one that another node has named."""
        with self._lock:
            if address not in self._endpoints:
                self._endpoints[address] = self._endpoint(address)
                self._order.append(address)
            return self._endpoints[address]

    def candidates(self, shard: int) -> list[str]:
        """Returns all addresses, the likely leader of a shard first."""
        with self._lock:
            leader = self._leaders.get(shard, "")
            others = [address for address in self._order if address != leader]
        return [leader, *others] if leader else others

    def led(self, shard: int, address: str) -> None:
        """Remembers the leader of a shard; "": there is none at the moment."""
        with self._lock:
            if address:
                self._leaders[shard] = address
            else:
                self._leaders.pop(shard, None)

    def silent(self, address: str) -> None:
        """Puts a node that does not answer, or knows no leader, behind all others."""
        with self._lock:
            if address in self._order:
                self._order.remove(address)
                self._order.append(address)
            self._leaders = {shard: leader for shard, leader in self._leaders.items() if leader != address}

    def _endpoint(self, address: str) -> TcpEndpoint:
        return TcpEndpoint(address, self._access, advice="the node may be down; the others go on")


class ShardEndpoint:
    """The `Endpoint` of one shard; the threads and loops of one client share the knowledge of `ClusterNodes`."""

    missed_port = 0

    def __init__(self, nodes: ClusterNodes, shard: int) -> None:
        self._nodes = nodes
        self.shard = shard
        #: The node of the last connection.
        self._address = ""

    @property
    def token(self) -> str:
        """The token for the opening."""
        return self._nodes.token

    async def connect(self, made: Callable[[], P]) -> P:
        """Connects to the likely leader, or to the first node that answers."""
        for address in self._nodes.candidates(self.shard):
            try:
                line = await self._nodes.endpoint(address).connect(made)
            except UnavailableError:
                self._nodes.silent(address)
            else:
                self._address = address
                return line
        raise self.unreachable("")

    def connect_blocking(self) -> socket.socket:
        """Connects as `connect` does, on the caller's thread."""
        for address in self._nodes.candidates(self.shard):
            try:
                line = self._nodes.endpoint(address).connect_blocking()
            except UnavailableError:
                self._nodes.silent(address)
            else:
                self._address = address
                return line
        raise self.unreachable("")

    def follow(self, leader: str) -> bool:
        """Handles a node that does not lead the shard or does not answer; False if there is no other node to ask.

        A node that names no leader may be cut off from the others, so another one is asked next.
        """
        self._nodes.led(self.shard, leader)
        if not leader:
            self._nodes.silent(self._address)
        return self._nodes.candidates(self.shard)[0] != self._address

    def redirect(self) -> bool:
        """Asks the node of the last connection for its port of the wire, if the address is that of gRPC."""
        return bool(self._address) and self._nodes.endpoint(self._address).redirect()

    def unreachable(self, why: str) -> UnavailableError:
        """Returns the error if no node answers."""
        del why
        message = f"no node of the cluster answers at {self._nodes.where}: check that they run, or use other addresses"
        return UnavailableError(message, reason="UNREACHABLE")
