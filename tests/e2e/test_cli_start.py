"""The start messages of servers and workers for people."""

import os
import signal

import pytest

from tests.e2e.fleet import Fleet
from tests.e2e.preloaded_prompt import LoadedProgram, LoadedShell

SHOP = """
from holdfast import Holdfast

app = Holdfast("./shop-data")


@app.job
def resize(path: str) -> str:
    return path
"""


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


def test_worker_prints_its_functions_on_a_terminal(loaded: LoadedProgram, fleet: Fleet) -> None:
    """On a terminal a worker prints its functions, its directory and how to stop it, and no JSON."""
    (fleet.folder / "shop.py").write_text(SHOP)
    shell = LoadedShell(loaded, fleet.folder)

    def drain() -> None:
        assert shell.run("worker", "drain", "anna", "--connect", "shop-data").returncode == 0

    command = ("worker", "-A", "shop:app", "--worker-id", "anna", "-c", "3")
    status, text = shell.at_terminal(*command, awaited="Ctrl-C", then=drain)
    assert status == 0
    assert f"anna is ready for resize, 3 at a time, from {fleet.folder}/shop-data; Ctrl-C stops it" in text
    assert '"ready"' not in text


def test_server_says_at_a_terminal_how_to_reach_it(loaded: LoadedProgram, fleet: Fleet) -> None:
    """On a terminal a server prints its URL for a program and its address for a command."""
    shell = LoadedShell(loaded, fleet.folder)

    def stop() -> None:
        os.kill(int((fleet.folder / "kept" / "LOCK").read_text()), signal.SIGTERM)

    status, text = shell.at_terminal("server", "--data", "kept", "--port", "0", awaited="Ctrl-C", then=stop)
    assert status == 0
    assert f'ready with the jobs in {fleet.folder}/kept: Holdfast("holdfast://127.0.0.1:' in text
    assert "or --connect 127.0.0.1:" in text


def test_up_warns_of_an_app_that_keeps_its_jobs_elsewhere(fleet: Fleet) -> None:
    """The worker of `holdfast up` warns if its app submits to another directory."""
    (fleet.folder / "shop.py").write_text(SHOP)
    other, _ = fleet.up("-A", "shop:app", data="other")
    assert "shop:app submits to './shop-data', but this worker runs the jobs of 'other'" in other.log
    same, _ = fleet.up("-A", "shop:app", data="shop-data")
    assert "submits to" not in same.log


def test_worker_warns_of_an_app_that_keeps_its_jobs_elsewhere(fleet: Fleet) -> None:
    """A worker warns if its app submits to another directory."""
    (fleet.folder / "shop.py").write_text(SHOP)
    fleet.server(data="other")
    worker = fleet.worker("other", "-A", "shop:app")
    where = str(fleet.folder / "other")
    assert f"shop:app submits to './shop-data', but this worker runs the jobs of {where!r}" in worker.log
