"""The monolith topology: three equal nodes, each with its own slots, one HTTP front, and a worker of all nodes."""

from pathlib import Path

from holdfast.core.owner import owner_index
from holdfast_lab.history.records import DamageFact, JobFact, Record
from holdfast_lab.torture.arenas import ledger_facts
from holdfast_lab.torture.arenas.archive import Archives
from holdfast_lab.torture.arenas.options import LEDGER, SLOTS, options_of
from holdfast_lab.torture.arenas.up_arena import ArenaPlan, UpArena

NODES = 3


def monolith(folder: Path, app: str) -> UpArena:
    """Returns an arena of three nodes; clients compute the owner of a job from its id."""
    return UpArena(
        folder,
        app,
        ArenaPlan(
            topology="monolith",
            keeps=frozenset({"grants", "order", "ticks"}),
            has_schedules=True,
            arguments=["--nodes", str(NODES), "--slots", str(SLOTS), *options_of(LEDGER)],
            ports=NODES,
            doors=NODES,
            seats=[("front", "front"), *(("node", f"node-{index}") for index in range(NODES))],
            seat_of=_seat_of,
            read=_read,
            journals=[f"node-{index}" for index in range(NODES)],
            employers=[f"node-{index}" for index in range(NODES)],
        ),
    )


def _seat_of(words: list[str]) -> tuple[str, str] | None:
    if words[:1] == ["front"]:
        return "front", "front"
    if words[:2] == ["node", "--index"]:
        return "node", f"node-{words[2]}"
    return None


def _read(data: Path, archives: Archives) -> list[Record]:
    """Reads the facts of each node; a job on a node that does not own it is damage."""
    found: list[Record] = []
    for index in range(NODES):
        name = f"node-{index}"
        facts = ledger_facts.read(data / name, name, archives.of(name))
        found += facts
        found += [
            DamageFact(f"node {index} has a job of node {owner_index(handle, NODES)}: {handle}", fact.id)
            for fact in facts
            if isinstance(fact, JobFact)
            for handle in filter(None, (fact.id, fact.key))
            if owner_index(handle, NODES) != index
        ]
    return found
