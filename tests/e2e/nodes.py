"""Several monolith nodes as real processes with fixed directories and ports."""

from pathlib import Path

import pytest

from tests.e2e.fleet import Fleet, Program, stable_port
from tests.e2e.grpc_client import Wire
from tests.e2e.wait_until import DEADLINE_S

_DEADLINES = ("SUBMIT_S", "_CANCEL_S", "_STATUS_S", "_RESULT_S", "_LIST_S")


def wait_for_the_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises the client deadlines of this process, so that a client waits for a node that only stalls.

    A node that is down is still noticed at once.
    """
    for name in _DEADLINES:
        monkeypatch.setattr(f"holdfast.client.remote.{name}", DEADLINE_S)


class NodeSet:
    """All nodes of one monolith, without slots by default."""

    def __init__(self, fleet: Fleet, data: Path, *options: str, nodes: int = 3, slots: int = 0) -> None:
        self._fleet = fleet
        self._data = data
        self._options = (*options, "--slots", str(slots))
        ports: set[int] = set()
        while len(ports) < nodes:
            ports.add(stable_port())
        self.addresses = [f"127.0.0.1:{port}" for port in sorted(ports)]
        self.programs: list[Program] = []
        self.wires: list[Wire] = []

    @property
    def target(self) -> str:
        """The comma-separated addresses for clients."""
        return ",".join(self.addresses)

    def start(self) -> None:
        """Starts all nodes and waits until they are ready."""
        self.programs = [self._start_one(index) for index in range(len(self.addresses))]
        for program in self.programs:
            program.ready()

    def connect(self) -> list[Wire]:
        """Returns a plain client for each node."""
        self.wires = self.wires or [self._fleet.wire(address) for address in self.addresses]
        return self.wires

    def _start_one(self, index: int) -> Program:
        return self._fleet.start(
            *("node", "--index", str(index), "--nodes", str(len(self.addresses))),
            *("--port", self.addresses[index].rpartition(":")[2], "--data", str(self.data(index))),
            *self._options,
        )

    def data(self, index: int) -> Path:
        """Returns the data directory of one node."""
        return self._data / f"node-{index}"

    def begin_again(self, index: int) -> None:
        """Restarts a node without waiting until it is ready."""
        self.programs[index] = self._start_one(index)

    def start_again(self, index: int) -> None:
        """Restarts a node and waits until it is ready."""
        self.begin_again(index)
        self.programs[index].ready()

    def kill(self) -> None:
        """Kills all nodes."""
        for program in self.programs:
            program.kill()
