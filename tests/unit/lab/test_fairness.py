"""Topologies are comparable: all have the same number of slots, and keep jobs in memory."""

import pytest

from holdfast_lab.compare.topologies import SLOTS, TOPOLOGIES, Topology, started
from holdfast_lab.measure.process_tree import argv, tree
from scripts.engines import POSTGRES, ZOOKEEPER
from tests.engines import require

ENGINES = {"pipeline": POSTGRES, "zookeeper": ZOOKEEPER}
DESIGNS = pytest.mark.parametrize("topology", TOPOLOGIES.values(), ids=list(TOPOLOGIES))


async def commands(topology: Topology) -> list[list[str]]:
    """Returns the command lines of all processes of a topology that is ready."""
    async with started(topology) as running:
        return [argv(pid) for pid in tree(running.pid)]


def slots_of(command: list[str]) -> int:
    """Returns the number of slots of a process, according to its command line."""
    if "worker" not in command and "node" not in command:
        return 0
    option = "--slots" if "--slots" in command else "--concurrency"
    return int(command[command.index(option) + 1])


@DESIGNS
async def test_topologies_are_comparable(topology: Topology) -> None:
    """Every topology has six slots in total, all workers have equally many, and no process has a data directory."""
    if topology.name in ENGINES:
        require(ENGINES[topology.name])
    found = await commands(topology)
    slots = [count for command in found if (count := slots_of(command))]
    assert sum(slots) == SLOTS
    assert len(slots) == {"monolith": SLOTS, "pipeline": 3}.get(topology.name, 1)
    assert len(set(slots)) == 1
    for command in found:
        places = [command[index + 1] for index, word in enumerate(command) if word == "--data"]
        assert set(places) <= {"memory://"}, command
