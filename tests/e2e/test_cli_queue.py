"""`holdfast queue` and `holdfast stats` against a running server."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.footprint import JOB_BYTES
from tests.e2e.fleet import Fleet
from tests.e2e.preloaded_prompt import LoadedProgram, LoadedShell
from tests.e2e.shell import Shell
from tests.e2e.wait_until import eventually


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


@pytest.fixture
def shell(loaded: LoadedProgram, fleet: Fleet) -> Shell:
    """A shell with a server without a worker."""
    program, _ = fleet.server()
    return LoadedShell(loaded, fleet.folder, program.ready()["grpc"])


@pytest.fixture
def queues(shell: Shell) -> Callable[[], dict[str, Any]]:
    """A function that returns the rows of `queue list --json` by queue name."""
    return lambda: {one["queue"]: one for one in json.loads(shell.run("queue", "list", "--json").stdout)}


def test_queue_list_counts_ready_and_delayed_jobs_separately(
    shell: Shell, queues: Callable[[], dict[str, Any]]
) -> None:
    """`queue list` counts ready and delayed jobs separately, in JSON and in the table."""
    shell.run("job", "submit", "echo", "--queue", "high")
    shell.run("job", "submit", "echo", "--queue", "high", "--delay", "600")
    high = queues()["high"]
    assert (high["mode"], high["ready"], high["delayed"], high["running"]) == ("OPEN", 1, 1, 0)
    lines = shell.run("queue", "list").stdout.splitlines()
    assert lines[0].split() == ["QUEUE", "MODE", "READY", "DELAYED", "RUNNING", "OLDEST", "REASON"]
    assert lines[1].split()[:5] == ["high", "OPEN", "1", "1", "0"]


def test_paused_queue_grants_nothing_until_it_is_resumed(
    shell: Shell, fleet: Fleet, queues: Callable[[], dict[str, Any]]
) -> None:
    """A worker gets no job of a paused queue, `job why` names the pause, and the job runs after the resume."""
    paused = shell.run("queue", "pause", "default", "--reason", "lunch")
    assert (paused.returncode, paused.stdout) == (0, "default is paused\n")
    fleet.worker(shell.environment["HOLDFAST_CONNECT"])
    job_id = shell.run("job", "submit", "echo", "x").stdout.strip()
    assert "paused" in shell.run("job", "why", job_id).stdout
    assert (queues()["default"]["mode"], queues()["default"]["reason"]) == ("PAUSED", "lunch")
    assert shell.run("queue", "resume", "default").stdout == "default is open\n"
    assert shell.run("job", "result", job_id).stdout == "x"


def test_drained_queue_takes_nothing_and_runs_empty(shell: Shell, fleet: Fleet) -> None:
    """A draining queue refuses new jobs, and `drain --wait` prints the jobs left and ends after the last one."""
    for _ in range(3):
        shell.run("job", "submit", "echo")
    waiting = fleet.start("queue", "drain", "default", "--wait", **shell.environment)
    eventually(lambda: waiting.log, lambda log: "3 jobs left" in log)
    refused = shell.run("job", "submit", "echo")
    assert (refused.returncode, "is draining and takes no new jobs" in refused.stderr) == (4, True)
    fleet.worker(shell.environment["HOLDFAST_CONNECT"])
    assert waiting.wait() == 0
    assert waiting.output == "default is draining\n"
    assert waiting.log.endswith("default is empty\n")


def test_purge_must_be_meant(shell: Shell) -> None:
    """Without a terminal `queue purge` refuses to run without --yes and names that flag."""
    shell.run("job", "submit", "echo")
    refused = shell.run("queue", "purge", "default")
    assert (refused.returncode, "--yes" in refused.stderr) == (2, True)
    assert shell.run("queue", "purge", "default", "--yes").stdout == "canceled 1 job\n"
    assert json.loads(shell.run("queue", "purge", "default", "-y", "--json").stdout) == {
        "queue": "default",
        "canceled": 0,
    }


def test_purge_asks_at_a_terminal(shell: Shell, queues: Callable[[], dict[str, Any]]) -> None:
    """On a terminal `queue purge` asks with the number of jobs, and cancels them only after yes."""
    for _ in range(2):
        shell.run("job", "submit", "echo")
    status, text = shell.at_terminal("queue", "purge", "default", typed="n\n")
    assert (status, "Cancel 2 waiting jobs of queue 'default'?" in text) == (130, True)
    assert queues()["default"]["ready"] == 2
    status, text = shell.at_terminal("queue", "purge", "default", typed="y\n")
    assert (status, "canceled 2 jobs" in text) == (0, True)
    assert queues() == {}


def test_stats_count_everything(shell: Shell) -> None:
    """`holdfast stats` counts jobs by state and memory in bytes, in JSON and as text."""
    shell.run("job", "submit", "echo", "12345")
    numbers = json.loads(shell.run("stats", "--json").stdout)
    assert (numbers["states"]["QUEUED"], numbers["workers"]) == (1, 0)
    held, limit = numbers["bytes_held"], numbers["bytes_held_max"]
    assert JOB_BYTES < held < 2 * JOB_BYTES < limit
    lines = dict(line.split(None, 1) for line in shell.run("stats").stdout.splitlines())
    assert (lines["queued"], lines["memory"]) == ("1", f"{held:,} bytes held by jobs, limit {limit:,}")


def test_stats_of_an_unserved_directory_have_no_memory_limit(loaded: LoadedProgram, fleet: Fleet) -> None:
    """A command that serves the directory itself shows the memory of its jobs, and no limit of a server."""
    shell = LoadedShell(loaded, fleet.folder, "left")
    assert shell.run("job", "submit", "echo").returncode == 0
    lines = dict(line.split(None, 1) for line in shell.run("stats").stdout.splitlines())
    assert lines["memory"].endswith(" bytes held by jobs")


@pytest.mark.parametrize("name", ["", "two words", "\x1b[2J"])
def test_name_that_no_queue_can_have_is_refused(shell: Shell, name: str) -> None:
    """`queue pause` refuses an invalid queue name and prints it without escape sequences."""
    done = shell.run("queue", "pause", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert "\x1b" not in done.stderr
