"""Warnings of a worker at its start, on the topologies that support them."""

import pytest

from tests.e2e.fleet import Fleet
from tests.e2e.preloaded_prompt import LoadedProgram, LoadedShell
from tests.e2e.wait_until import eventually

EMPTY = """
from holdfast import Holdfast

app = Holdfast("memory://")
"""
OPTIONS = {
    "embedded": (),
    "monolith": ("--topology", "monolith", "--nodes", "1"),
    "microservices": ("--topology", "microservices"),
}


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


@pytest.mark.parametrize("topology", OPTIONS)
def test_worker_of_every_topology_warns_of_an_app_without_functions(fleet: Fleet, topology: str) -> None:
    """The worker of every topology warns about an app without job functions."""
    (fleet.folder / "empty.py").write_text(EMPTY)
    server, _ = fleet.up("-A", "empty:app", *OPTIONS[topology])
    (line,) = server.lines("no_job_functions")
    assert (line["level"], line["app"]) == ("warning", "empty:app")
    assert line["message"].startswith("empty:app has no job functions")


@pytest.mark.parametrize("place", ["server", "directory"])
def test_worker_names_the_types_that_no_worker_knows(fleet: Fleet, loaded: LoadedProgram, place: str) -> None:
    """A worker logs the types of waiting jobs that no worker knows, with counts, over gRPC and on a directory."""
    target = fleet.server()[1].target if place == "server" else "data"
    shell = LoadedShell(loaded, fleet.folder, target)
    for job_type in ("old.name", "old.name", "echo"):
        assert shell.run("job", "submit", job_type).returncode == 0
    worker = fleet.worker(target)
    (line,) = eventually(lambda: worker.lines("unknown_types"), what="the warning")
    assert (line["level"], line["types"]) == ("warning", {"old.name": 2})
