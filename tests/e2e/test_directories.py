"""Workers, commands and apps use a directory in the same way: the first process that opens it serves it."""

import json
from pathlib import Path

import pytest

from holdfast.errors import ExitCode
from tests.e2e.fleet import Fleet
from tests.e2e.preloaded_prompt import LoadedProgram, LoadedShell
from tests.e2e.shell import Shell
from tests.e2e.wait_until import eventually

SHOP = """
from holdfast import Holdfast

app = Holdfast({url})


@app.job
def resize(path: str) -> str:
    return path
"""


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


@pytest.fixture
def shell(loaded: LoadedProgram, fleet: Fleet) -> Shell:
    """A shell in the folder of the fleet."""
    return LoadedShell(loaded, fleet.folder)


def write_shop(folder: Path, url: str = '"./data"') -> None:
    (folder / "shop.py").write_text(SHOP.format(url=url))


def holder(directory: Path) -> int:
    """Returns the pid of the process that serves the directory; 0 while the lock file is written."""
    return int((directory / "LOCK").read_text() or 0)


@pytest.mark.parametrize("app", [(), ("-A", "shop:app")], ids=["without app", "with app"])
@pytest.mark.parametrize("told_by", ["flag", "environment", "file"])
def test_worker_serves_the_directory_that_it_is_told(
    fleet: Fleet, shell: Shell, told_by: str, app: tuple[str, ...]
) -> None:
    """A worker that gets a directory by flag, environment or file serves it and runs its jobs."""
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
    """A worker prints the path of its app's directory only if it creates the directory."""
    write_shop(fleet.folder)
    worker = fleet.start("worker", "-A", "shop:app")
    assert worker.ready()["grpc"] == str(fleet.folder / "data")
    made = f"holdfast: creating the data directory '{fleet.folder / 'data'}'"
    assert worker.log.count(made) == 1
    second = fleet.start("worker", "-A", "shop:app")
    second.ready()
    assert "creating the data directory" not in second.log


def test_directory_passes_to_the_next_worker(fleet: Fleet, shell: Shell) -> None:
    """After a kill of the worker that serves a directory, another worker serves it and runs its jobs."""
    first = fleet.worker("data")
    second = fleet.worker("data")
    assert holder(fleet.folder / "data") == first.pid
    first.kill()
    eventually(lambda: holder(fleet.folder / "data"), second.pid.__eq__, what="the second worker's pid in the lock")
    done = shell.run("job", "submit", "echo", "again", "--wait", "--connect", "data")
    assert (done.returncode, done.stdout) == (0, "again")


def test_app_and_worker_share_the_directory_of_the_environment(fleet: Fleet, shell: Shell) -> None:
    """An app without a URL uses the directory in HOLDFAST_CONNECT, like its worker."""
    write_shop(fleet.folder, url="")
    worker = fleet.start("worker", "-A", "shop:app", HOLDFAST_CONNECT="elsewhere")
    worker.ready()
    assert "submits to" not in worker.log
    payload = json.dumps({"path": "cat.png"})
    done = shell.run("job", "submit", "resize", payload, "--wait", HOLDFAST_CONNECT="elsewhere")
    assert (done.returncode, done.stdout) == (0, '"cat.png"')
    assert not (fleet.folder / "holdfast-data").exists()


def test_only_commands_that_write_make_a_directory(fleet: Fleet, shell: Shell) -> None:
    """A command that reads refuses a missing directory, and a submit creates it and prints its path."""
    read = shell.run("job", "list", "--connect", "new")
    assert (read.returncode, (fleet.folder / "new").exists()) == (2, False)
    assert "got 'new', which is not an existing directory" in read.stderr
    submitted = shell.run("job", "submit", "echo", "--connect", "new")
    assert f"creating the data directory '{fleet.folder / 'new'}'" in submitted.stderr
    listed = shell.run("job", "list", "--json", "--connect", "new")
    assert submitted.stdout.strip() in listed.stdout


@pytest.mark.parametrize("command", [("worker",), ("job", "list"), ("job", "submit", "echo")], ids=" ".join)
def test_directory_of_another_topology_is_refused(fleet: Fleet, shell: Shell, command: tuple[str, ...]) -> None:
    """Workers and commands refuse a directory of another topology and name the command that starts that one."""
    sign = fleet.folder / "data" / "zookeeper" / "ports.json"
    sign.parent.mkdir(parents=True)
    sign.touch()
    done = shell.run(*command, "--connect", "data")
    assert done.returncode != 0
    assert "holdfast up --topology zookeeper --data" in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in sign.parent.parent.iterdir()) == ["zookeeper"]


def test_command_that_serves_a_directory_prints_its_own_error_alone(shell: Shell) -> None:
    """A command that serves a directory itself prints its own error, and no log line of the refused request."""
    shell.run("job", "submit", "echo", "--connect", "data")
    done = shell.run("job", "get", "nothing-like-it", "--connect", "data")
    assert done.stderr.startswith("holdfast: no job 'nothing-like-it': it never existed, or it finished")
    assert done.stderr.count("\n") == 1


def test_worker_ends_where_the_directory_is_damaged(fleet: Fleet, shell: Shell) -> None:
    """A worker exits at once on a damaged directory, and names the damage and the restore command."""
    shell.run("job", "submit", "echo", "hello", "--connect", "./data")
    (segment,) = (fleet.folder / "data").glob("*.seg")
    content = segment.read_bytes()
    segment.write_bytes(content[:40] + bytes(len(content[40:60])) + content[60:])
    worker = fleet.start("worker", "--connect", "./data")
    assert worker.wait() == ExitCode.REFUSED
    assert "is damaged" in worker.log
    assert "holdfast journal restore" in worker.log
