"""The bench beside the peers, run for real with the one system that is always there: Holdfast."""

import ast
from pathlib import Path

import msgspec
import pytest

from holdfast.lab.peers.measures import MEASURES
from holdfast.lab.peers.results import KillTrial, figures
from holdfast.lab.peers.rounds import Plan, run, schedule
from holdfast.lab.peers.system import System
from holdfast.lab.peers.systems import SYSTEMS

TINY = Plan(["holdfast-directory"], rounds=1, kills=0, seconds=0.05, echo_calls=64)
PORT = {name for name in vars(System) if not name.startswith("_")}


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_every_measure_of_speed_gives_figures() -> None:
    """Holdfast in a directory and with a server is measured in every way, and nothing fails."""
    said: list[str] = []
    plan = msgspec.structs.replace(TINY, systems=["holdfast-directory", "holdfast-server"])
    results = await run(plan, {}, said.append)
    assert results.errors == []
    assert {(name, figure) for name, _, figure in figures(results.trials)} == {
        (name, figure) for name in plan.systems for figure in ("bulk", "end_to_end", "p50", "p99")
    }
    assert all(value > 0 for figure in figures(results.trials).values() for value in figure.values)
    assert len(said) == len(plan.systems) * len(MEASURES)


@pytest.mark.slow
async def test_jobs_of_a_killed_worker_finish_in_the_other() -> None:
    """With one of two workers killed, Holdfast finishes all jobs, and repeats none whose end was reported."""
    plan = msgspec.structs.replace(TINY, rounds=0, kills=1, seconds=0.4)
    (trial,) = (await run(plan, {}, lambda _: None)).kills
    assert isinstance(trial, KillTrial)
    assert trial.kill is not None, trial.error
    assert (trial.kill.finished, trial.kill.lost) == (50, 0)
    # What was cut off is started again; so is what had ended without a chance to say so, and only that ends twice.
    assert trial.kill.started_again - trial.kill.running == trial.kill.finished_twice


async def test_system_that_cannot_run_is_reported_and_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a Redis each trial of a peer fails with its reason, and the run goes on to its end."""
    monkeypatch.setenv("PATH", str(tmp_path))
    plan = msgspec.structs.replace(TINY, systems=["huey"])
    results = await run(plan, {}, lambda _: None)
    assert len(results.errors) == len(list(schedule(plan)))
    assert all("redis-server" in error for error in results.errors)


def test_systems_take_turns_in_each_round() -> None:
    """Each round measures every system in each of its modes before the next one begins."""
    plan = msgspec.structs.replace(TINY, systems=["holdfast-server", "rq"], rounds=2)
    rows = list(schedule(plan))
    one_measure = [("holdfast-server", "own"), ("rq", "default"), ("rq", "always")]
    assert [(system, mode) for _, _, system, mode in rows] == one_measure * len(MEASURES) * 2
    assert [number for number, *_ in rows] == sorted(number for number, *_ in rows)


@pytest.mark.parametrize("name", SYSTEMS)
def test_adapter_has_all_that_a_system_must(name: str, root: Path) -> None:
    """Every adapter defines the whole port, peers included, which are not installed here."""
    entry = SYSTEMS[name]
    tree = ast.parse((root / f"src/holdfast/lab/peers/systems/{entry.module}.py").read_text())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    assert members(entry.name, classes) >= PORT


def members(name: str, classes: dict[str, ast.ClassDef]) -> set[str]:
    """What a class of the file defines, its bases included."""
    inherited = [members(base.id, classes) for base in classes[name].bases if isinstance(base, ast.Name)]
    functions = {node.name for node in classes[name].body if isinstance(node, ast.FunctionDef)}
    values = {
        target.id
        for node in classes[name].body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return functions.union(values, *inherited)
