"""Every topology under load and faults for a while; MINUTES and SEED make it longer, and other."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.lab.check.judging import judge
from holdfast.lab.check.rendering import render
from holdfast.lab.check.ruling import Status
from holdfast.lab.history.files import read_records
from holdfast.lab.history.records import Broken
from holdfast.lab.torture.arenas import arena_of
from holdfast.lab.torture.running import Settings, Torture
from tests.e2e.fleet import clean_environment
from tests.postgres import require_postgres
from tests.zookeeper import require_zookeeper

MINUTES = os.environ.get("MINUTES") or "0.33"
SEED = os.environ.get("SEED") or "8"
#: Such as are over soon; the others are for longer runs.
FAULTS = "kill,kill-starting,stop-short,cut"
#: What a run may take beside its faults: engines start, jobs end, all of them are read again.
AROUND_S = 400.0


@pytest.mark.parametrize("topology", ["embedded", "microservices", "monolith", "pipeline", "zookeeper"])
def test_no_promise_is_broken_under_faults(topology: str, short_path: Path) -> None:
    """Whatever is killed, stopped and cut off, the records show no promise broken, and everything ends."""
    if topology == "pipeline":
        require_postgres()
    if topology == "zookeeper":
        require_zookeeper()
    folder = short_path / topology
    options = ["--topology", topology, "--minutes", MINUTES, "--seed", SEED, "--faults", FAULTS, "--out", str(folder)]
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


def test_standstill_ends_the_run_and_is_a_finding(short_path: Path) -> None:
    """Where nobody runs the jobs, the run does not wait for its time to be over, and says why."""
    settings = Settings(
        topology="embedded",
        minutes=5,
        seed=1,
        folder=short_path,
        faults=[],
        clients=2,
        stall_s=3.0,
        drain_bound_s=1.0,
    )
    arena = arena_of("embedded", short_path / "arena", app="holdfast.lab.noop_app:app")
    asyncio.run(Torture(settings, arena, {}, lambda line: None).run())  # noqa: ARG005 - nobody listens
    verdict = judge(short_path)
    assert verdict.ruling("drained").status is Status.BROKEN
    assert any("for 3 s, although nothing was broken" in one.text for one in verdict.ruling("sound").findings)
