"""`holdfast up --topology microservices`: one command starts six processes, restarts them and ends them."""

import contextlib
import os
import pty
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from holdfast import Holdfast
from holdfast.errors import ExitCode
from holdfast.proto import taskqueue_public_pb2 as public
from holdfast_lab.measure.reserved_ports import Ports
from tests.e2e.app_jobs import is_gone
from tests.e2e.fleet import HOLDFAST, Fleet, Program, clean_environment, fleet_in, kill_all, stable_port
from tests.e2e.grpc_client import Wire, refusal
from tests.e2e.http_requests import ask
from tests.e2e.slow_start import listens, process_with, refuses_everything_but_probes, stopped
from tests.e2e.wait_until import eventually

ROLES = ("job", "queue", "result", "coordinator", "gateway", "worker")
UP = ("up", "--topology", "microservices", "--port", "0")
APP = """
import os
from holdfast import Holdfast

app = Holdfast("memory://")

@app.job
def double(number: int) -> int:
    return 2 * number

@app.job(isolation="process")
def variables() -> list[str]:
    return sorted(os.environ)
"""


class Up:
    """One topology that is ready."""

    def __init__(self, fleet: Fleet, *arguments: str, **environment: str) -> None:
        self.program: Program = fleet.start(*UP, *arguments, **environment)
        self.ready = self.program.ready()
        self.wire: Wire = fleet.wire(self.ready["grpc"])

    def pids(self) -> dict[str, int]:
        """Returns the current process of each role."""
        words: dict[int, list[bytes]] = {}
        for pid in self.program.children():
            with contextlib.suppress(OSError):  # the process has ended since
                words[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return {line[line.index(b"service") + 1].decode(): pid for pid, line in words.items() if b"service" in line}

    def replaced(self, role: str, old: int) -> None:
        """Waits until the supervisor has restarted the role and the new process is ready."""
        eventually(lambda: [line["role"] for line in self.program.lines("role_ready")].count(role) == 2)
        assert self.pids()[role] != old


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One topology for the read-only tests and for the last one, which stops it."""
    folder = tmp_path_factory.mktemp("up")
    (folder / "shop.py").write_text(APP)
    with fleet_in(folder) as fleet:
        yield Up(fleet, "--app", "shop:app", WORKER_ID="w-1")


class Keeping:
    """A topology with a data directory, and its restarts."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.folder = fleet.folder
        self.up = self.start()

    def start(self) -> Up:
        """Starts the topology on the same directory."""
        self.up = Up(self._fleet, "--data", "kept", "--heartbeat-ms", "100", "--worker-timeout-ms", "1000")
        return self.up


@pytest.fixture(scope="module")
def keeping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keeping]:
    """One topology for the tests that kill its processes; the last one kills the supervisor."""
    with fleet_in(tmp_path_factory.mktemp("keeping")) as fleet:
        yield Keeping(fleet)


def variables_of(pid: int) -> dict[str, str]:
    """Returns the environment of a process."""
    pairs = Path(f"/proc/{pid}/environ").read_text().rstrip("\0").split("\0")
    return dict(pair.split("=", 1) for pair in pairs)


def test_six_processes_and_one_line(shared: Up) -> None:
    """`holdfast up` starts six processes and prints one ready line with the addresses of gateway and services."""
    assert shared.pids().keys() == set(ROLES)
    assert shared.ready["services"].keys() == set(ROLES) - {"worker"}
    assert shared.ready["services"]["gateway"] == shared.ready["grpc"]
    assert shared.ready["data"] == "memory://"
    assert shared.program.output.count("\n") == 1


def test_job_of_the_frozen_contract_runs(shared: Up) -> None:
    """The worker runs a job of the frozen contract, and the gateway returns its result."""
    job_id = shared.wire.new(size=10)
    assert shared.wire.wait_for(job_id).status == public.DONE
    assert shared.wire.result(job_id).output_bytes == b"." * 10


def test_job_of_an_app_runs_and_sees_no_token(shared: Up) -> None:
    """The worker runs a job of an app, and its child process gets no service token in its environment."""
    with Holdfast(f"holdfast://{shared.ready['grpc']}") as client:
        assert client.submit("double", [21]).result(timeout_s=60) == 42
        seen = client.submit("variables", []).result(timeout_s=60)
    assert "COORDINATOR_ADDR" in seen
    assert [name for name in seen if "TOKEN" in name] == []


def test_each_process_has_a_token_of_its_own(shared: Up) -> None:
    """Gateway, coordinator and worker each get a service token of their own, and the owners get only hashes."""
    told = {role: variables_of(pid) for role, pid in shared.pids().items()}
    tokens = {role: variables["SERVICE_TOKEN"] for role, variables in told.items() if "SERVICE_TOKEN" in variables}
    assert tokens.keys() == {"gateway", "coordinator", "worker"}
    assert len(set(tokens.values())) == 3
    assert "SERVICE_TOKEN" not in variables_of(shared.program.pid)
    assert {role for role, variables in told.items() if "SERVICE_TOKEN_HASHES" in variables} == {
        *("job", "queue", "result", "coordinator")
    }
    assert shared.program.lines("unprotected") == []
    assert not any(token in shared.program.log for token in tokens.values())


def test_services_know_their_callers(shared: Up) -> None:
    """Every service except the gateway refuses a local caller without a token."""
    for role, address in shared.ready["services"].items():
        with contextlib.closing(Wire(address)) as wire:
            path = f"/taskqueue.internal.v1.{role.capitalize()}InternalService/Anything"
            code = refusal(lambda wire=wire, path=path: wire.raw(path, b"")).code  # type: ignore[misc]
        assert code.name == ("UNIMPLEMENTED" if role == "gateway" else "UNAUTHENTICATED")


def test_stop_ends_everything_in_good_order(shared: Up) -> None:
    """Ctrl-C lets the worker finish its job, then ends the other services, and leaves no process."""
    up = shared
    pids = up.pids()
    up.wire.running(ms=300)
    up.program.signal(signal.SIGINT)
    assert up.program.wait() == 0
    assert all(is_gone(pid) for pid in pids.values())
    order = [line["service"] for line in up.program.lines("stopped")]
    assert sorted(order[:2]) == ["coordinator", "gateway"]
    assert sorted(order[2:]) == ["job", "queue", "result"]
    assert up.program.lines("role_died") == []


def test_killed_roles_come_back_where_they_were(keeping: Keeping) -> None:
    """The supervisor restarts each killed role on its port, and jobs accepted before the kill are run."""
    up = keeping.up
    for role in ROLES:
        job_id = eventually(lambda: _submitted(up.wire), what="a submit that is accepted")
        old = up.pids()[role]
        os.kill(old, signal.SIGKILL)
        up.replaced(role, old)
        ends(up.wire, job_id)


def _submitted(wire: Wire) -> str:
    """Submits a job and returns its id; empty while a restarted service is not reachable yet."""
    try:
        return wire.new(ms=20)
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            raise
        return ""


def ends(wire: Wire, job_id: str) -> None:
    """Waits until the job is DONE, while services may be unavailable."""
    eventually(lambda: _status(wire, job_id), lambda found: found == public.DONE, what="the end of the job")


def _status(wire: Wire, job_id: str) -> int | None:
    """Returns the status of a job; None while it is unavailable."""
    try:
        return wire.status(job_id, timeout_s=5).status
    except grpc.RpcError:
        return None


def test_jobs_are_there_after_a_restart(keeping: Keeping) -> None:
    """After a restart on its directory the topology has its jobs and results, and new service tokens."""
    first = keeping.up
    job_id = first.wire.new(size=3)
    first.wire.wait_for(job_id)
    tokens = {variables_of(first.pids()["gateway"])["SERVICE_TOKEN"]}
    assert first.program.stop() == 0
    assert {path.name for path in (keeping.folder / "kept").iterdir()} == {"job", "queue", "result"}
    second = keeping.start()
    tokens.add(variables_of(second.pids()["gateway"])["SERVICE_TOKEN"])
    assert second.wire.result(job_id).output_bytes == b"..."
    assert len(tokens) == 2


def test_no_process_survives_a_killed_supervisor(keeping: Keeping) -> None:
    """All six processes end when `holdfast up` is killed."""
    up = keeping.up
    pids = [*up.pids().values()]
    assert len(pids) == 6
    up.program.kill()
    try:
        eventually(lambda: all(is_gone(pid) for pid in pids), what="the end of its children")
    finally:
        kill_all(pids)


def test_up_prints_on_a_terminal_the_services_it_waits_for(fleet: Fleet) -> None:
    """On a terminal `holdfast up` prints the services it waits for, then a sentence instead of JSON."""
    ours, theirs = pty.openpty()
    program = fleet.adopt(
        subprocess.Popen([*HOLDFAST, *UP], cwd=fleet.folder, env=clean_environment({}), stdout=theirs, stderr=theirs)
    )
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):  # EIO: the other end of the terminal is closed
        while part := os.read(ours, 65_536):
            is_new, text = b"ready with the jobs" not in text, text + part
            if is_new and b"ready with the jobs" in text:
                program.signal(signal.SIGINT)
    os.close(ours)
    assert program.wait() == 0
    assert b"holdfast: waiting for job, queue, result\r\n" in text
    assert re.search(
        rb"holdfast: waiting for [a-z, ]*\bworker\b[a-z, ]*\r\n", text
    )  # other roles may come before or after it
    assert b'"event"' not in text


def test_app_that_is_not_there_ends_everything(fleet: Fleet) -> None:
    """With an app that cannot be imported, `holdfast up` prints the worker's error and ends every process."""
    program = fleet.start(*UP, "--app", "nowhere:app")
    assert program.wait() == ExitCode.USAGE
    assert program.output == ""
    said = [line for line in program.log.splitlines() if line.startswith("holdfast: ")]
    assert "nowhere" in said[0]
    assert said[-1] == "holdfast: the worker cannot start; see its message above"
    assert program.children() == []


def test_port_that_is_taken_ends_everything(fleet: Fleet) -> None:
    """With one of its five ports taken, `holdfast up` names the port and the service and exits."""
    ports = Ports(5)
    first = ports.first
    ports.close()
    with socket.socket() as taken:
        port = first + 2
        taken.bind(("127.0.0.1", port))
        taken.listen()
        program = fleet.start("up", "--topology", "microservices", "--port", str(first))
        assert program.wait() == ExitCode.UNREACHABLE
    assert f"cannot listen on 127.0.0.1:{port}" in program.log
    assert "the queue cannot start; see its message above" in program.log


def test_setting_that_only_a_ledger_heeds_is_refused(fleet: Fleet) -> None:
    """`holdfast up --topology microservices` refuses settings that only a ledger uses."""
    program = fleet.start(*UP, "--lease-ms", "500", "--history-ms", "1234")
    assert program.wait() == ExitCode.USAGE
    assert [line.split()[1] for line in program.log.splitlines()] == ["--lease-ms", "--history-ms"]


def test_failed_jobs_have_a_retention_of_their_own(tmp_path: Path) -> None:
    """With --retain-ms 0 a DONE job is evicted at once, and a FAILED one stays."""
    with fleet_in(tmp_path) as fleet:
        wire = Up(fleet, "--retain-ms", "0").wire
        failed, done = wire.new(labels={"sim.fail": "BY_REQUEST"}), wire.new()
        wire.wait_for(failed)
        eventually(lambda: _is_unknown(wire, done), what="the end of the retention")
        assert wire.status(failed).status == public.FAILED


def _is_unknown(wire: Wire, job_id: str) -> bool:
    try:
        wire.status(job_id)
    except grpc.RpcError as error:
        return bool(error.code() == grpc.StatusCode.NOT_FOUND)
    return False


def test_gateway_answers_probes_while_an_owner_starts(fleet: Fleet) -> None:
    """Before all owners serve, HTTP answers /livez and refuses the rest, and no ready line is printed."""
    ports = Ports(5)
    first = ports.first
    ports.close()
    http = f"127.0.0.1:{stable_port()}"
    options = ("--topology", "microservices", "--port", str(first), "--data", "data")
    program = fleet.start("up", *options, "--http-port", http.rpartition(":")[2])
    # Stopped before the gateway has asked it for its health, which a stopped process does not answer.
    with stopped(lambda: process_with(program, b"result"), lambda: listens(first + 4)):
        refuses_everything_but_probes(http)
        assert program.output == ""
    assert program.ready()["http"] == http
    assert ask(http, "/readyz").text == "ready\n"
    assert program.output.count("\n") == 1
    assert program.stop() == 0
