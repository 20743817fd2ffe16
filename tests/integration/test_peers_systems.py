"""The comparison with peers, run with Holdfast and with beanstalkd: both need no Python package of a peer."""

import ast
from pathlib import Path

import msgspec
import pytest

from holdfast_lab.peers.results import FIGURES, KillTrial, figures
from holdfast_lab.peers.rounds import PeersPlan, run, schedule
from holdfast_lab.peers.system import System
from holdfast_lab.peers.systems import DEFAULT_SYSTEMS, KILL, SYSTEMS
from scripts.engines import BEANSTALKD
from tests.engines import require

TINY = PeersPlan(["holdfast-directory"], rounds=1, kills=0, seconds=0.05, echo_calls=64)
PORT = {name for name in vars(System) if not name.startswith("_")}


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_every_measure_of_speed_gives_figures() -> None:
    """Every measure of Holdfast, in a directory and with a server, gives figures and no error."""
    await assert_every_measure_gives_figures(["holdfast-directory", "holdfast-server"])


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_every_measure_of_speed_gives_figures_of_a_raw_peer() -> None:
    """Every measure of beanstalkd, with two of our workers over its protocol, gives figures and no error."""
    require(BEANSTALKD)
    await assert_every_measure_gives_figures(["beanstalkd"])


async def assert_every_measure_gives_figures(systems: list[str]) -> None:
    said: list[str] = []
    plan = msgspec.structs.replace(TINY, systems=systems)
    results = await run(plan, {}, said.append)
    assert results.errors == []
    assert {(name, figure) for name, _, figure in figures(results.trials)} == {
        (name, figure) for name in plan.systems for figure in FIGURES if figure != "together"
    }
    assert all(value > 0 for figure in figures(results.trials).values() for value in figure.values)
    assert len(said) == sum(len(SYSTEMS[name].measures) for name in plan.systems)


@pytest.mark.slow
async def test_jobs_of_a_killed_worker_finish_in_the_other() -> None:
    """With one of two workers killed, Holdfast finishes all jobs, and repeats none whose end was reported."""
    plan = msgspec.structs.replace(TINY, rounds=0, kills=1, seconds=0.4)
    (trial,) = (await run(plan, {}, lambda _: None)).kills
    assert isinstance(trial, KillTrial)
    assert trial.kill is not None, trial.error
    assert (trial.kill.finished, trial.kill.lost) == (50, 0)
    # Interrupted jobs start again, and so do jobs that ended without a report; only the latter finish twice.
    assert trial.kill.started_again - trial.kill.running == trial.kill.finished_twice


async def test_system_that_cannot_run_is_reported_and_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Redis each trial of a peer fails with its reason, and the run continues to its end."""
    monkeypatch.setenv("PATH", str(tmp_path))
    plan = msgspec.structs.replace(TINY, systems=["huey"])
    results = await run(plan, {}, lambda _: None)
    assert len(results.errors) == len(list(schedule(plan)))
    assert all("redis-server" in error for error in results.errors)


def test_systems_take_turns_in_each_round() -> None:
    """Each round measures every system in each of its modes before the next round begins."""
    plan = msgspec.structs.replace(TINY, systems=["holdfast-server", "rq"], rounds=2)
    rows = list(schedule(plan))
    one_measure = [("holdfast-server", "only-synced"), ("rq", "unsynced"), ("rq", "synced")]
    reverse = [("rq", "unsynced"), ("rq", "synced"), ("holdfast-server", "only-synced")]
    measures = len(SYSTEMS["rq"].measures)
    expected = one_measure * measures + reverse * measures
    assert [(system, mode) for _, _, system, mode in rows] == expected
    assert [number for number, *_ in rows] == sorted(number for number, *_ in rows)


def test_concurrent_callers_are_measured_only_where_a_system_is_made_for_them() -> None:
    """The pipeline and Procrastinate are also measured with concurrent callers, and no worker of theirs is killed."""
    rows = schedule(msgspec.structs.replace(TINY, systems=["holdfast-server", "procrastinate"]))
    assert [system for _, measure, system, _ in rows if measure == "submit_together"] == ["procrastinate"]
    assert [name for name, entry in SYSTEMS.items() if KILL not in entry.workers] == [
        "holdfast-pipeline",
        "procrastinate",
    ]
    assert not {"holdfast-pipeline", "procrastinate"} & set(DEFAULT_SYSTEMS)


@pytest.mark.parametrize("name", SYSTEMS)
def test_adapter_has_all_that_a_system_must(name: str, root: Path) -> None:
    """Every adapter defines the whole port, also those of peers that are not installed here."""
    entry = SYSTEMS[name]
    tree = ast.parse((root / f"lab/src/holdfast_lab/peers/systems/{entry.module}.py").read_text())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    assert members(entry.name, classes) >= PORT


def members(name: str, classes: dict[str, ast.ClassDef]) -> set[str]:
    """The names that a class of the file and its bases define."""
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
