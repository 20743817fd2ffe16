"""Several nodes as real processes, with the directories and ports that they keep."""

from pathlib import Path

import pytest

from tests.e2e.fleet import Fleet, Program, stable_port
from tests.e2e.waiting import DEADLINE_S
from tests.e2e.wire import Wire

_DEADLINES = ("_SUBMIT_S", "_CANCEL_S", "_STATUS_S", "_RESULT_S", "_LIST_S")


def wait_for_the_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients in this process wait for a node that only stands still, and do not pass it over after a second.

    One that is away is noticed at once all the same.
    """
    for name in _DEADLINES:
        monkeypatch.setattr(f"holdfast.client.remote.{name}", DEADLINE_S)


class NodeSet:
    """All nodes of one monolith; none has slots unless that is said."""

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
        """What clients are told."""
        return ",".join(self.addresses)

    def start(self) -> None:
        """Waits until all are ready."""
        self.programs = [self._start_one(index) for index in range(len(self.addresses))]
        for program in self.programs:
            program.ready()

    def connect(self) -> list[Wire]:
        """A plain client of each node."""
        self.wires = self.wires or [self._fleet.wire(address) for address in self.addresses]
        return self.wires

    def _start_one(self, index: int) -> Program:
        return self._fleet.start(
            *("node", "--index", str(index), "--nodes", str(len(self.addresses))),
            *("--port", self.addresses[index].rpartition(":")[2], "--data", str(self.data(index))),
            *self._options,
        )

    def data(self, index: int) -> Path:
        """Where one node keeps its jobs."""
        return self._data / f"node-{index}"

    def begin_again(self, index: int) -> None:
        """Starts a node that has ended; it need not be ready when this returns."""
        self.programs[index] = self._start_one(index)

    def start_again(self, index: int) -> None:
        """The same, until it is ready."""
        self.begin_again(index)
        self.programs[index].ready()

    def kill(self) -> None:
        """Ends all of them as a power cut would."""
        for program in self.programs:
            program.kill()
