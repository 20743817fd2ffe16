"""The supervisor of a topology, with small real processes."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.errors import FailedPreconditionError, HoldfastError, InvalidArgumentError, UnavailableError
from holdfast.process.supervised_process import ProcessSpec
from holdfast.process.supervisor import StoppedError, Supervisor
from tests.e2e.wait_until import eventually

#: Prints its ready line; on TERM it appends its name to the file and exits.
CALM = """
import json, os, signal, sys
from holdfast.process.lifeline import lifeline
name, path = sys.argv[1:]
def end(*_):
    with open(path, "a") as file:
        file.write(f"{name} ")
    os._exit(0)
signal.signal(signal.SIGTERM, end)
lifeline()
print("something else")
print('{"event": "other"}')
port = int(os.environ.get("A_PORT", "0")) or 40_001
ready = {"event": "ready", "pid": os.getpid(), "grpc": f"127.0.0.1:{port}", "variable": os.environ.get("A_PORT")}
with open(f"{path}.{name}", "a") as file:
    file.write(json.dumps(ready) + "\\n")
print(json.dumps(ready), flush=True)
while True:
    signal.pause()
"""
STUBBORN = CALM.replace("signal.signal(signal.SIGTERM, end)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
#: As CALM, with a forked child that keeps the pipes open until the file `gate` is opened for writing.
FORKING = CALM.replace(
    "print(json.dumps(ready)",
    "if os.fork() == 0:\n    os._exit(open(f'{path}.gate').close() or 0)\nprint(json.dumps(ready)",
)
SILENT = "import signal\nsignal.pause()"
#: Tells its address first; ready when the file `gate` is opened for writing.
EARLY = CALM.replace(
    "print(json.dumps(ready)",
    "print(json.dumps({**ready, 'event': 'listening'}), flush=True)\nopen(f'{path}.gate').close()\n"
    "print(json.dumps(ready)",
)


@pytest.fixture
def ends(tmp_path: Path) -> Path:
    """The file in which processes record the order in which they ended."""
    return tmp_path / "ends"


def role(ends: Path, name: str, program: str = CALM, port_variable: str = "") -> ProcessSpec:
    return ProcessSpec(name, [sys.executable, "-c", program, name, str(ends)], port_variable=port_variable)


def lives(ends: Path, name: str) -> list[dict[str, Any]]:
    """Returns the ready lines of all runs of a role."""
    path = Path(f"{ends}.{name}")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def happens(read: Any, is_right: Any = bool) -> Any:  # noqa: ANN401 - as `eventually`
    """Waits in a thread until the value read is right."""
    return await asyncio.to_thread(eventually, read, is_right)


async def end(supervisor: Supervisor) -> None:
    supervisor.stop()
    await supervisor.wait()


def order(ends: Path) -> list[str]:
    return ends.read_text().split()


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_start_gives_the_ready_line_of_every_role(ends: Path) -> None:
    """`start` returns the ready line of each process by its name, whatever else the process prints."""
    supervisor = Supervisor([role(ends, "a"), role(ends, "b")])
    lines = await supervisor.start()
    await end(supervisor)
    assert {name: line["event"] for name, line in lines.items()} == {"a": "ready", "b": "ready"}
    assert not any(is_there(line["pid"]) for line in lines.values())


async def test_later_stages_end_before_earlier_ones_are_told(ends: Path) -> None:
    """A stage has ended completely before the stage that was started before it is stopped."""
    supervisor = Supervisor([role(ends, "owner")])
    await supervisor.start()
    await supervisor.add([role(ends, "gateway")])
    await supervisor.add([role(ends, "worker")])
    await end(supervisor)
    assert order(ends) == ["worker", "gateway", "owner"]


async def test_killed_role_comes_back_on_its_port(ends: Path) -> None:
    """A killed role is restarted with the port that it had."""
    supervisor = Supervisor([role(ends, "a", port_variable="A_PORT")])
    lines = await supervisor.start()
    os.kill(lines["a"]["pid"], signal.SIGKILL)
    first, second = await happens(lambda: lives(ends, "a"), lambda found: len(found) == 2)
    await end(supervisor)
    assert (first["variable"], second["variable"]) == (None, "40001")
    assert first["pid"] != second["pid"]
    assert not is_there(second["pid"])


async def test_killed_role_comes_back_while_a_forked_child_holds_its_pipes(ends: Path) -> None:
    """A killed role is restarted although a forked child still holds its pipes."""
    gate = Path(f"{ends}.gate")
    os.mkfifo(gate)
    supervisor = Supervisor([role(ends, "a", FORKING)])
    lines = await supervisor.start()
    os.kill(lines["a"]["pid"], signal.SIGKILL)
    await happens(lambda: lives(ends, "a"), lambda found: len(found) == 2)
    await end(supervisor)
    os.close(await asyncio.to_thread(os.open, gate, os.O_WRONLY))  # the children end


@pytest.mark.parametrize(
    ("status", "error"), [(2, InvalidArgumentError), (3, UnavailableError), (4, FailedPreconditionError)]
)
async def test_role_that_refuses_to_start_ends_all(ends: Path, status: int, error: type[HoldfastError]) -> None:
    """If a role refuses to start, the error names it and all other processes are stopped."""
    supervisor = Supervisor([role(ends, "good")])
    lines = await supervisor.start()
    with pytest.raises(error, match="bad cannot start; see its message above"):
        await supervisor.add([role(ends, "bad", f"raise SystemExit({status})")])
    assert not is_there(lines["good"]["pid"])


async def test_role_that_crashes_before_it_is_ready_is_tried_again(ends: Path) -> None:
    """A role that crashes before it is ready is restarted."""
    once = f"import os, pathlib\nmarker = pathlib.Path({str(ends)!r} + '.marker')\nif not marker.exists():\n"
    once += "    marker.touch()\n    os._exit(70)\n"
    supervisor = Supervisor([role(ends, "a", once + CALM)])
    lines = await supervisor.start()
    await end(supervisor)
    assert lines["a"]["event"] == "ready"


async def test_stop_while_starting_ends_the_start(ends: Path) -> None:
    """`stop` ends a start that waits for a role, and later stages are refused."""
    supervisor = Supervisor([role(ends, "a")])
    lines = await supervisor.start()
    adding = asyncio.create_task(supervisor.add([role(ends, "silent", SILENT)]))
    await asyncio.sleep(0)
    supervisor.stop()
    with pytest.raises(StoppedError):
        await adding
    await supervisor.wait()
    with pytest.raises(StoppedError):
        await supervisor.add([role(ends, "late")])
    assert not is_there(lines["a"]["pid"])


async def test_role_that_does_not_end_is_killed_in_the_end(ends: Path) -> None:
    """A process that ignores TERM is killed at the third stop."""
    supervisor = Supervisor([role(ends, "a"), role(ends, "stubborn", STUBBORN)])
    lines = await supervisor.start()
    for _ in range(3):
        supervisor.stop()
    await supervisor.wait()
    assert not any(is_there(line["pid"]) for line in lines.values())


async def test_address_is_known_before_a_process_is_ready(ends: Path) -> None:
    """A process may say where it listens before it is ready, and another stage can start meanwhile."""
    gate = Path(f"{ends}.gate")
    os.mkfifo(gate)
    supervisor = Supervisor([])
    slow = supervisor.begin([role(ends, "slow", EARLY, port_variable="A_PORT")])
    lines = await supervisor.listening(slow)
    assert lines["slow"]["grpc"] == "127.0.0.1:40001"
    assert not slow[0].settled.is_set()
    assert (await supervisor.add([role(ends, "other")])).keys() == {"other"}
    await asyncio.to_thread(lambda: gate.open("w").close())
    assert (await supervisor.ready(slow)).keys() == {"slow"}
    await end(supervisor)
    assert order(ends) == ["other", "slow"]


async def test_refusal_is_noticed_while_another_stage_is_awaited(ends: Path) -> None:
    """If any role refuses to start, waiting for another one ends with its refusal, and everything is stopped."""
    supervisor = Supervisor([])
    waiting = supervisor.begin([role(ends, "waiting", SILENT)])
    supervisor.begin([role(ends, "refusing", "import sys; sys.exit(2)")])
    with pytest.raises(InvalidArgumentError, match="the refusing cannot start"):
        await supervisor.ready(waiting)


async def test_arguments_until_ready_are_left_out_by_a_restart(ends: Path) -> None:
    """A process that is restarted after its ready line is started without the arguments for a first start."""
    program = CALM.replace("sys.argv[1:]", "sys.argv[1:3]").replace('"pid":', '"last": sys.argv[-1], "pid":')
    supervisor = Supervisor([])
    spec = msgspec.structs.replace(role(ends, "a", program), until_ready=["--early"])
    await supervisor.add([spec])
    os.kill(lives(ends, "a")[0]["pid"], signal.SIGKILL)
    await happens(lambda: len(lives(ends, "a")) == 2)
    assert [life["last"] for life in lives(ends, "a")] == ["--early", str(ends)]
    await end(supervisor)
