"""The command `holdfast lab torture`; MINUTES sets the length of its run, and SEED its random choices.

The kill campaigns run the same load, faults and rules on every topology.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast_lab.check.judge import judge
from holdfast_lab.check.verdict import Status
from holdfast_lab.check.verdict_report import render
from holdfast_lab.history.files import read_records
from holdfast_lab.history.records import Broken
from holdfast_lab.measure.process_tree import argv, tree
from holdfast_lab.torture.arenas import arena_of
from holdfast_lab.torture.run import Torture, TortureSettings
from tests.e2e.fleet import clean_environment
from tests.e2e.wait_until import eventually

MINUTES = os.environ.get("MINUTES") or "0.33"
#: With this seed the first fault is a kill.
SEED = os.environ.get("SEED") or "9"
#: Short faults; the others are for longer runs.
FAULTS = "kill,kill-starting,stop-short,cut"
#: Time limit of a run beside its faults: engines start, jobs end, and all jobs are read again.
AROUND_S = 400.0
pytestmark = pytest.mark.timeout(float(MINUTES) * 60 + 2 * AROUND_S)


def test_no_promise_is_broken_under_faults(short_path: Path) -> None:
    """With kills, stops and cut connections the run breaks no guarantee, and all jobs end."""
    folder = short_path / "run"
    options = ["--minutes", MINUTES, "--seed", SEED, "--faults", FAULTS, "--out", str(folder)]
    ran = subprocess.run(
        [sys.executable, "-m", "holdfast", "lab", "torture", *options],
        cwd=short_path,
        env=clean_environment({}),
        capture_output=True,
        text=True,
        timeout=float(MINUTES) * 60 + AROUND_S,
        check=False,
    )
    assert ran.returncode in {0, 5}, f"SEED={SEED}: {ran.stdout}\n{ran.stderr}"
    verdict = judge(folder)
    assert verdict.ruling("drained").status is Status.KEPT, render(verdict)
    assert any(isinstance(record, Broken) and "kill" in record.kind for record in read_records(folder))
    assert "timeline.svg" in (folder / "report.md").read_text()
    assert (folder / "timeline.svg").read_text().startswith("<?xml")


@contextmanager
def tortured(folder: Path, *options: str) -> Iterator[tuple["subprocess.Popen[str]", set[int]]]:
    """Yields a long run after its first fault, and the pids of its processes; kills the run afterwards."""
    command = [sys.executable, "-m", "holdfast", "lab", "torture", "--minutes", "9", "--out", str(folder), *options]
    with subprocess.Popen(
        command, cwd=folder.parent, env=clean_environment({}), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        try:
            assert run.stderr is not None
            said = "".join(iter_until(run.stderr, " 1 faults; "))
            assert " 1 faults; " in said, said
            yield run, set(tree(run.pid)) - {run.pid}
        finally:
            run.kill()


def iter_until(lines: Iterable[str], word: str) -> Iterator[str]:
    for line in lines:
        yield line
        if word in line:
            return


def still_there(pids: set[int], folder: Path) -> list[str]:
    """The command lines of processes that still run, and the mounts that still exist."""
    mounted = [line for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line]
    return [" ".join(words) for pid in pids if (words := argv(pid))] + mounted


def test_interrupted_run_is_judged_and_leaves_no_process_behind(short_path: Path) -> None:
    """An interrupted run writes a report and a verdict, in which unfinished jobs break no guarantee."""
    folder = short_path / "run"
    with tortured(folder, "--seed", SEED, "--faults", "cut") as (run, pids):
        run.send_signal(signal.SIGINT)
        told, said = run.communicate(timeout=AROUND_S)
    assert run.returncode == 130, f"SEED={SEED}: {told}\n{said}"
    assert "verdict: unknown" in told
    assert "It ended early: it was interrupted" in (folder / "report.md").read_text()
    verdict = judge(folder)
    assert verdict.ruling("drained").status is Status.UNKNOWN
    assert verdict.ruling("lost").status is Status.KEPT
    assert still_there(pids, folder) == []


def test_killed_run_leaves_neither_processes_nor_mounts(short_path: Path) -> None:
    """After a kill of the run, all its processes end by themselves and its mounts disappear."""
    folder = short_path / "run"
    with tortured(folder, "--seed", SEED, "--faults", "cut") as (run, pids):
        run.kill()
        run.communicate(timeout=AROUND_S)
        eventually(lambda: still_there(pids, folder), lambda left: not left)


def test_standstill_ends_the_run_and_is_a_finding(short_path: Path) -> None:
    """A run in which no job ends stops early and reports the standstill as a finding."""
    settings = TortureSettings(
        topology="embedded",
        minutes=5,
        seed=1,
        folder=short_path,
        faults=[],
        clients=2,
        stall_s=3.0,
        drain_bound_s=1.0,
    )
    arena = arena_of("embedded", short_path / "arena", app="holdfast_lab.bench.noop_app:app")
    asyncio.run(Torture(settings, arena, {}, lambda line: None).run())  # noqa: ARG005 - ignores the progress
    verdict = judge(short_path)
    assert verdict.ruling("drained").status is Status.BROKEN
    assert any("for 3 s, although no fault was active" in one.text for one in verdict.ruling("sound").findings)
