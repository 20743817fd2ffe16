"""A directory of jobs means the same to workers, commands and apps: the first process that opens it serves it."""

import json
from pathlib import Path

import pytest

from holdfast.errors import ExitCode
from tests.e2e.fleet import Fleet
from tests.e2e.loaded import LoadedProgram, LoadedShell
from tests.e2e.shell import Shell
from tests.e2e.waiting import eventually

SHOP = """
from holdfast import Holdfast

app = Holdfast({url})


@app.job
def resize(path: str) -> str:
    return path
"""


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """Processes of a program that is loaded once: how it is loaded is no part of these tests."""
    return loaded_fleet


@pytest.fixture
def shell(loaded: LoadedProgram, fleet: Fleet) -> Shell:
    """Commands in the folder of the processes."""
    return LoadedShell(loaded, fleet.folder)


def write_shop(folder: Path, url: str = '"./data"') -> None:
    (folder / "shop.py").write_text(SHOP.format(url=url))


def holder(directory: Path) -> int:
    """The pid of the process that serves the directory; 0 while it is written."""
    return int((directory / "LOCK").read_text() or 0)


@pytest.mark.parametrize("app", [(), ("-A", "shop:app")], ids=["without app", "with app"])
@pytest.mark.parametrize("told_by", ["flag", "environment", "file"])
def test_worker_serves_the_directory_that_it_is_told(
    fleet: Fleet, shell: Shell, told_by: str, app: tuple[str, ...]
) -> None:
    """However the worker is told of a directory that no process serves, it serves the directory and runs the jobs."""
    write_shop(fleet.folder)
    submitted = shell.run("job", "submit", "echo", "hello", "--connect", "data")
    flags = ("--connect", "./data") if told_by == "flag" else ()
    environment = {"HOLDFAST_CONNECT": "./data"} if told_by == "environment" else {}
    if told_by == "file":
        (fleet.folder / "pyproject.toml").write_text('[tool.holdfast]\nconnect = "./data"\n')
    worker = fleet.start("worker", *app, *flags, **environment)
    assert worker.ready()["grpc"] == str(fleet.folder / "data")
    assert holder(fleet.folder / "data") == worker.pid
    result = shell.run("job", "result", submitted.stdout.strip(), "--connect", "data")
    assert (result.returncode, result.stdout) == (0, "hello")
    assert worker.lines("disconnected") == []


def test_worker_says_that_it_makes_the_directory_of_its_app(fleet: Fleet) -> None:
    """In a folder without the jobs of its app, the worker names the new directory with its path, and only then."""
    write_shop(fleet.folder)
    worker = fleet.start("worker", "-A", "shop:app")
    assert worker.ready()["grpc"] == str(fleet.folder / "data")
    made = f"holdfast: making the directory '{fleet.folder / 'data'}' for jobs"
    assert worker.log.count(made) == 1
    second = fleet.start("worker", "-A", "shop:app")
    second.ready()
    assert "making the directory" not in second.log


def test_directory_passes_to_the_next_worker(fleet: Fleet, shell: Shell) -> None:
    """When the worker that serves a directory is killed, another worker serves it and goes on."""
    first = fleet.worker("data")
    second = fleet.worker("data")
    assert holder(fleet.folder / "data") == first.pid
    first.kill()
    eventually(lambda: holder(fleet.folder / "data"), second.pid.__eq__, what="the second worker's pid in the lock")
    done = shell.run("job", "submit", "echo", "again", "--wait", "--connect", "data")
    assert (done.returncode, done.stdout) == (0, "again")


def test_app_and_worker_share_the_directory_of_the_environment(fleet: Fleet, shell: Shell) -> None:
    """An app without a URL keeps its jobs where HOLDFAST_CONNECT sends its worker."""
    write_shop(fleet.folder, url="")
    worker = fleet.start("worker", "-A", "shop:app", HOLDFAST_CONNECT="elsewhere")
    worker.ready()
    assert "submits to" not in worker.log
    payload = json.dumps({"path": "cat.png"})
    done = shell.run("job", "submit", "resize", payload, "--wait", HOLDFAST_CONNECT="elsewhere")
    assert (done.returncode, done.stdout) == (0, '"cat.png"')
    assert not (fleet.folder / "holdfast-data").exists()


def test_only_commands_that_write_make_a_directory(fleet: Fleet, shell: Shell) -> None:
    """A command that reads says that there is no such directory; one that submits makes it, and says so."""
    read = shell.run("job", "list", "--connect", "new")
    assert (read.returncode, (fleet.folder / "new").exists()) == (2, False)
    assert "got 'new', which is no directory here" in read.stderr
    submitted = shell.run("job", "submit", "echo", "--connect", "new")
    assert f"making the directory '{fleet.folder / 'new'}'" in submitted.stderr
    listed = shell.run("job", "list", "--json", "--connect", "new")
    assert submitted.stdout.strip() in listed.stdout


@pytest.mark.parametrize("command", [("worker",), ("job", "list"), ("job", "submit", "echo")], ids=" ".join)
def test_directory_of_another_topology_is_refused(fleet: Fleet, shell: Shell, command: tuple[str, ...]) -> None:
    """Workers and commands name the topology that a directory belongs to, and the command that starts it."""
    sign = fleet.folder / "data" / "zookeeper" / "ports.json"
    sign.parent.mkdir(parents=True)
    sign.touch()
    done = shell.run(*command, "--connect", "data")
    assert done.returncode != 0
    assert "holdfast up --topology zookeeper --data" in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in sign.parent.parent.iterdir()) == ["zookeeper"]


def test_command_that_serves_a_directory_prints_its_own_error_alone(shell: Shell) -> None:
    """A request that is refused is not logged above the error of the command that made it."""
    shell.run("job", "submit", "echo", "--connect", "data")
    done = shell.run("job", "get", "nothing-like-it", "--connect", "data")
    assert done.stderr.startswith("holdfast: no job 'nothing-like-it': it never existed, or its retention is over; a ")
    assert done.stderr.count("\n") == 1


def test_worker_ends_where_the_directory_is_damaged(fleet: Fleet, shell: Shell) -> None:
    """No later try would succeed, so the worker does not try again, and says what is damaged and what to do."""
    shell.run("job", "submit", "echo", "hello", "--connect", "./data")
    (segment,) = (fleet.folder / "data").glob("*.seg")
    content = segment.read_bytes()
    segment.write_bytes(content[:40] + bytes(len(content[40:60])) + content[60:])
    worker = fleet.start("worker", "--connect", "./data")
    assert worker.wait() == ExitCode.REFUSED
    assert "is damaged" in worker.log
    assert "holdfast journal restore" in worker.log
