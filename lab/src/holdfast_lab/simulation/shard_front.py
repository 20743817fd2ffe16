"""The servers of one shard, as its clients and workers see them: the current leader, and old ones that do not know."""

import random
from collections.abc import Callable, Collection

from holdfast_lab.simulation.cluster_server import ClusterServer
from holdfast_lab.simulation.network import Network
from holdfast_lab.simulation.scheduler import Call
from holdfast_lab.simulation.server import SimulatedServer

#: How often a client that knows several servers asks an older one.
_OLD = 0.3


class ShardFront:
    """The `ServerHost` of the actors of one shard."""

    had_room = False

    def __init__(self, rng: random.Random, fired: Callable[[str], None]) -> None:
        self._rng = rng
        self.fired = fired
        self.on_down: list[Call] = []
        self.net: Network
        self.servers: list[ClusterServer] = []

    @property
    def newest(self) -> ClusterServer | None:
        """The server of the highest epoch."""
        return max(self.servers, key=lambda server: server.epoch, default=None)

    @property
    def server(self) -> ClusterServer | None:
        """The server that a new connection reaches."""
        if len(self.servers) > 1 and self._rng.random() < _OLD:
            self.fired("asked one of two leaders")
            return self._rng.choice(self.servers)
        return self.newest

    def current_leases(self) -> Collection[int]:
        """Returns nothing: which of two servers a session has reached is not known here."""
        return ()

    def enter(self, kind: str, call: Callable[[SimulatedServer], None]) -> bool:
        """Delivers a call to a server."""
        server = self.server
        if server is None:
            return False
        server.process.here(kind, lambda: call(server))
        return True

    def begin(self, server: ClusterServer) -> None:
        """Adds a server."""
        self.servers.append(server)

    def end(self, server: ClusterServer) -> None:
        """Removes a server, and ends the connections to it."""
        if server in self.servers:
            self.servers.remove(server)
            self.net.cut_streams_of(server)
