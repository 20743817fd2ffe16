"""`holdfast up --topology monolith`: one command starts six equal nodes."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from holdfast import Holdfast
from holdfast.core.owner import owner_index
from holdfast.errors import ExitCode
from holdfast.proto import taskqueue_public_pb2 as public
from holdfast_lab.measure.reserved_ports import Ports
from tests.e2e.fleet import Fleet, Program, fleet_in, stable_port
from tests.e2e.grpc_client import Wire
from tests.e2e.http_requests import ask
from tests.e2e.nodes import wait_for_the_slow
from tests.e2e.preloaded_prompt import LoadedProgram, LoadedShell
from tests.e2e.slow_start import listens, process_with, refuses_everything_but_probes, stopped
from tests.e2e.wait_until import eventually

APP = """
import os
from holdfast import Holdfast

app = Holdfast("memory://")

@app.job
def greet(name: str) -> str:
    return f"hello {name}"

@app.job(isolation="process")
def where() -> int:
    return os.getpid()
"""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises the client deadlines, so that a stalled node is not skipped."""
    wait_for_the_slow(monkeypatch)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Program, Path]]:
    """Two nodes with an app, and their folder; the last test that uses them stops them."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "shop.py").write_text(APP)
    arguments = ("--nodes", "2", "--port", "0", "--http-port", "0", "--data", "data", "-A", "shop:app")
    with fleet_in(folder) as fleet:
        yield fleet.start("up", "--topology", "monolith", *arguments), folder


def test_six_equal_nodes_serve_work_and_come_back(fleet: Fleet, tmp_path: Path, loaded: LoadedProgram) -> None:
    """Six nodes serve clients and run jobs with one slot each, and a killed node returns with its jobs."""
    program = fleet.start("up", "--topology", "monolith", "--port", "0", "--data", "data")
    ready = program.ready()
    addresses = ready["nodes"]
    assert (len(addresses), ready["grpc"]) == (6, ",".join(addresses))
    assert len(program.children()) == 7  # six nodes and the front
    wires = [fleet.wire(address) for address in addresses]
    ids = [wire.new(ms=1) for wire in wires]
    for index, (wire, job_id) in enumerate(zip(wires, ids, strict=True)):
        assert owner_index(job_id, 6) == index
        wire.wait_for(job_id)
        assert wire.result(job_id).terminal_status == public.DONE
        assert wire.cancel(job_id).already_terminal
        assert [job.job_id for job in wire.all_jobs()] == [job_id]
    workers = LoadedShell(loaded, tmp_path, ready["grpc"]).run("worker", "list").stdout.splitlines()[1:]
    assert [line.split()[0].rpartition("-")[0] for line in workers] == [f"node-{index}" for index in range(6)]
    assert all("0/1" in line for line in workers)

    (victim,) = eventually(lambda: [line["pid"] for line in program.lines("role_ready") if line["role"] == "node-2"])
    os.kill(victim, signal.SIGKILL)
    eventually(
        lambda: [line["role"] for line in program.lines("role_ready")].count("node-2") == 2, what="the restarted node"
    )
    eventually(
        lambda: _status(wires[2], ids[2]), lambda status: status == public.DONE, what="the job on the restarted node"
    )
    assert len(eventually(program.children, lambda now: len(now) == 7 and victim not in now)) == 7
    with Holdfast(f"holdfast://{ready['grpc']}") as app:
        jobs = [app.submit("echo", [number]) for number in range(12)]
        assert [job.result(30) for job in jobs] == [[number] for number in range(12)]
        assert {owner_index(job.id, 6) for job in jobs} == set(range(6))
    alive = program.children()
    assert program.stop() == 0
    assert not [pid for pid in alive if Path(f"/proc/{pid}").exists()]
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [f"node-{index}" for index in range(6)]


def _status(wire: Wire, job_id: str) -> int:
    try:
        return wire.status(job_id).status
    except grpc.RpcError:  # the node is down
        return -1


def test_nodes_run_the_functions_of_an_app(two: tuple[Program, Path]) -> None:
    """The slot of a node runs functions of an app, in the node or in a child process."""
    program, _ = two
    with Holdfast(f"holdfast://{program.ready()['grpc']}") as app:
        jobs = [app.submit("greet", [str(number)]) for number in range(4)]
        assert [job.result(60) for job in jobs] == [f"hello {number}" for number in range(4)]
        assert app.submit("where").result(60) not in program.children()


def test_second_start_on_a_directory_in_use_names_the_lock(two: tuple[Program, Path], loaded: LoadedProgram) -> None:
    """A second `holdfast up` on a directory is refused for its lock, with the same HTTP port and with another."""
    first, folder = two
    taken = first.ready()["http"].rpartition(":")[2]
    for port in (taken, "0"):
        second = LoadedShell(loaded, folder).run(
            *("up", "--topology", "monolith", "--nodes", "2", "--port", "0", "--data", "data", "--http-port", port)
        )
        assert second.returncode == ExitCode.UNREACHABLE
        assert re.search("data/node-[01] is in use by process", second.stderr)
        assert "cannot serve HTTP" not in second.stderr
        assert "front" not in second.stderr


def test_number_of_nodes_is_fixed_for_a_directory(two: tuple[Program, Path], loaded: LoadedProgram) -> None:
    """`holdfast up` refuses another number of nodes for a directory and prints why."""
    first, folder = two
    first.ready()
    assert first.stop() == 0
    again = LoadedShell(loaded, folder).run(
        "up", "--topology", "monolith", "--nodes", "3", "--port", "0", "--data", "data"
    )
    assert again.returncode == ExitCode.REFUSED
    assert re.search("belongs to node [01] of 2", again.stderr)  # from whichever node fails first


def test_ports_that_do_not_suffice_are_refused(tmp_path: Path, loaded: LoadedProgram) -> None:
    """`holdfast up` refuses a port that leaves too few ports for all nodes."""
    done = LoadedShell(loaded, tmp_path).run("up", "--topology", "monolith", "--port", "65533")
    assert (done.returncode, "port must be at most 65530" in done.stderr) == (ExitCode.USAGE, True)


def test_app_that_cannot_be_loaded_is_refused(tmp_path: Path, loaded: LoadedProgram) -> None:
    """With an app that cannot be imported, `holdfast up` exits and names the app."""
    done = LoadedShell(loaded, tmp_path).run(
        "up", "--topology", "monolith", "--nodes", "2", "--port", "0", "-A", "nobody:app"
    )
    assert done.returncode == ExitCode.USAGE
    assert "nobody" in done.stderr


def test_front_answers_probes_while_a_node_starts(fleet: Fleet) -> None:
    """Before all nodes serve, HTTP answers /livez and refuses the rest, and no ready line is printed."""
    ports = Ports(2)
    first = ports.first
    ports.close()
    http = f"127.0.0.1:{stable_port()}"
    options = ("--topology", "monolith", "--nodes", "2", "--port", str(first), "--data", "data")
    program = fleet.start("up", *options, "--http-port", http.rpartition(":")[2])
    # Stopped before the front has asked it, which a stopped process does not answer.
    with stopped(lambda: process_with(program, b"node", b"--index", b"1"), lambda: listens(first + 1)):
        refuses_everything_but_probes(http)
        assert program.output == ""
    assert program.ready()["http"] == http
    assert ask(http, "/readyz").text == "ready\n"
    assert program.output.count("\n") == 1
    assert program.stop() == 0
