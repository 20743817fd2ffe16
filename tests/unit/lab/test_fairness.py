"""What is compared is comparable: the same slots for all, and jobs in memory."""

import pytest

from holdfast.lab.compare.process_tree import argv, tree
from holdfast.lab.compare.topologies import SLOTS, TOPOLOGIES, Topology, started
from scripts.engines import POSTGRES, ZOOKEEPER
from tests.engines import require

ENGINES = {"pipeline": POSTGRES, "zookeeper": ZOOKEEPER}
DESIGNS = pytest.mark.parametrize("topology", TOPOLOGIES.values(), ids=list(TOPOLOGIES))


async def commands(topology: Topology) -> list[list[str]]:
    """The command lines of all processes of a topology that is ready."""
    async with started(topology) as running:
        return [argv(pid) for pid in tree(running.pid)]


def slots_of(command: list[str]) -> int:
    """How many jobs the process runs at a time, by its command line."""
    if "worker" not in command and "node" not in command:
        return 0
    option = "--slots" if "--slots" in command else "--concurrency"
    return int(command[command.index(option) + 1])


@DESIGNS
async def test_topologies_are_comparable(topology: Topology) -> None:
    """Six slots in all, in one worker, in three, or one in each of six nodes; no process has a directory for jobs."""
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
