"""Length and random seed of a kill campaign: `make kills` sets KILLS for a long run, SEED repeats a run."""

import asyncio
import os
import random
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from holdfast_lab.check.judge import judge
from holdfast_lab.check.verdict import Status
from holdfast_lab.check.verdict_report import render
from holdfast_lab.history.files import read_records
from holdfast_lab.history.records import Record
from holdfast_lab.measure.process_tree import argv, tree
from holdfast_lab.torture.arenas import arena_of
from holdfast_lab.torture.faults.kinds import fault_of
from holdfast_lab.torture.report import numbers_of
from holdfast_lab.torture.run import Torture, TortureSettings

T = TypeVar("T")
#: The rules of the judge that every campaign must test and keep.
KEPT = (
    *("lost", "unasked", "invisible", "duplicated", "doubly terminal", "unfinished", "illegal", "drained"),
    *("two leases", "ran after cancel", "hung", "interfaces", "sound", "calls", "faults"),
)


#: Faults of every campaign beside its own.
ALSO = {"kill-starting": 1, "stop-short": 1, "cut": 1}


def kills_each(otherwise: int) -> int:
    """Returns the number of kills per victim: KILLS, or the test's default."""
    return int(os.environ.get("KILLS", "") or otherwise)


def seed(otherwise: int) -> int:
    """Returns the seed of all random choices: SEED, or the test's default."""
    return int(os.environ.get("SEED", "") or otherwise)


def victims(candidates: Iterable[T], each: int, draw: random.Random) -> list[T]:
    """Returns each candidate `each` times, in random order."""
    order = [victim for victim in candidates for _ in range(each)]
    draw.shuffle(order)
    return order


def besieged(topology: str, folder: Path, own: Mapping[str, int], chance: int) -> list[Record]:
    """Fires each fault this often at a topology under load, judges the records, and returns them.

    The load, the faults and the rules are those of the torture. `kill worker` is the fault `kill`, aimed at a role.
    """
    counts = {**own, **ALSO}
    settings = TortureSettings(
        topology=topology, minutes=0, seed=chance, folder=folder, faults=list(counts), counts=counts, clients=6
    )
    faults = {name: fault_of(name) for name in counts}
    before, started = set(tree(os.getpid())), set[int]()

    def say(line: str) -> None:
        started.update(set(tree(os.getpid())) - before)
        sys.stderr.write(f"{line}\n")

    asyncio.run(Torture(settings, arena_of(topology, folder / "arena"), faults, say).run())
    assert [words for pid in started if (words := argv(pid))] == [], "a process was left behind"
    verdict, records = judge(folder), list(read_records(folder))
    numbers = numbers_of(records)
    sys.stdout.write(f"SEED={chance} {numbers.totals()}, {dict(numbers.fired())}\n")
    assert verdict.status is not Status.BROKEN, render(verdict)
    assert numbers.fired() == counts, render(verdict)
    assert [rule for rule in KEPT if verdict.ruling(rule).status is not Status.KEPT] == [], render(verdict)
    assert numbers.totals()["calls lost"], "no call met a fault"
    return records
