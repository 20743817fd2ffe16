"""The ensemble of the zookeeper topology: three servers, each a separate engine."""

import asyncio
import contextlib
from pathlib import Path

from holdfast.errors import UnavailableError
from holdfast.topologies.zookeeper.private_ensemble import PrivateZooKeeper
from holdfast_lab.measure.process_tree import argv, tree
from holdfast_lab.torture.arenas.expected_exits import ExpectedExits

SERVERS = 3
#: How often a crash waits for its server until the run fails.
_WAITS = 4


class ServerEngine:
    """One server; implements the port `Engine`."""

    def __init__(self, ensemble: PrivateZooKeeper, index: int, expected_exits: ExpectedExits) -> None:
        self.name = f"zookeeper-{index + 1}"
        self._ensemble = ensemble
        self._index = index
        self._expected_exits = expected_exits
        self._changing = asyncio.Lock()
        self._known = 0

    def pids(self) -> list[int]:
        """Returns its process; empty while it is down."""
        return [pid for pid in tree(self._pid) if argv(pid)] if self._known else []

    async def crash(self) -> None:
        """Kills the server with SIGKILL and starts it again; returns once it serves."""
        async with self._changing:
            self._expected_exits.expect(self._pid)
            await asyncio.to_thread(self._ensemble.kill, self._index)
            self._ensemble.start_server(self._index)
            await asyncio.to_thread(self._wait_until_it_serves)
            self._known = self._pid

    def _wait_until_it_serves(self) -> None:
        """Waits longer than the product would: a busy machine may need several restarts of a server that hangs."""
        for _ in range(_WAITS - 1):
            with contextlib.suppress(UnavailableError):
                self._ensemble.serving(self._index)
                return
        self._ensemble.serving(self._index)

    def begin(self) -> None:
        """Records that the server runs."""
        self._known = self._pid

    def notice(self) -> None:
        """Records an exit if the server was replaced unexpectedly."""
        if self._known and not self._changing.locked() and self._pid != self._known:
            self._expected_exits.ended(self.name, self._known, -1)
            self._known = self._pid

    def end(self) -> None:
        """Stops watching the server, before it is stopped."""
        self.notice()
        self._known = 0

    @property
    def _pid(self) -> int:
        return self._ensemble.servers[self._index].pid


class EnsembleEngines:
    """All servers of the ensemble; they start and stop together."""

    def __init__(self, directory: Path, expected_exits: ExpectedExits) -> None:
        self._ensemble = PrivateZooKeeper(directory, SERVERS)
        self.servers = [ServerEngine(self._ensemble, index, expected_exits) for index in range(SERVERS)]

    async def start(self) -> str:
        """Starts the servers; returns the hosts once every server serves."""
        hosts = await asyncio.to_thread(self._ensemble.start)
        for server in self.servers:
            server.begin()
        return hosts

    def notice(self) -> None:
        """Records the exits of servers that were replaced unexpectedly."""
        for server in self.servers:
            server.notice()

    async def stop(self) -> None:
        """Stops all servers."""
        for server in self.servers:
            server.end()
        await asyncio.to_thread(self._ensemble.stop)
