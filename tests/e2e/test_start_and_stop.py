"""Start and shutdown of servers and workers, and refused starts."""

import fcntl
import hashlib
import os
import signal
import struct
import subprocess
import termios
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2

from holdfast.errors import ExitCode
from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.app_jobs import APP, ROOT, one, pid_in, submit
from tests.e2e.fleet import HOLDFAST, Fleet, Program, clean_environment, kill_all, stable_port
from tests.e2e.grpc_client import Wire
from tests.e2e.history import checked, events_in, grants, revocations
from tests.e2e.wait_until import eventually

NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def is_gone(pid: int) -> bool:
    """Whether the process has ended; a zombie counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def app_up(fleet: Fleet, *arguments: str) -> tuple[Program, Wire]:
    """Starts a server with a worker of one slot and the app with misbehaving handlers."""
    command = ("up", "--data", "data", "--port", "0", "--slots", "1", "-A", APP)
    up = fleet.start(*command, *arguments, PYTHONPATH=ROOT)
    return up, fleet.wire(up.ready()["grpc"])


def test_server_and_worker_run_a_job_from_its_submit_to_its_result(fleet: Fleet, tmp_path: Path) -> None:
    """`holdfast up` returns output and checksum of a job, exits with 0, and its journal has one attempt."""
    up, wire = fleet.up()
    job_id = wire.new(size=3)
    wire.wait_for(job_id)
    result = wire.result(job_id)
    assert (result.output_bytes, result.checksum) == (b"...", hashlib.sha256(b"...").hexdigest())
    assert up.stop() == 0
    ((known, job),) = checked(tmp_path / "data").jobs.items()
    assert (known, job.state, job.attempts) == (job_id, public.DONE, 1)


def test_every_line_on_standard_error_is_json(fleet: Fleet) -> None:
    """Server and worker write only JSON lines to standard error."""
    up, wire = fleet.up()
    wire.wait_for(wire.new())
    up.stop()
    assert [line for line in up.log.splitlines() if not line.startswith("{")] == []
    assert {line["service"] for line in up.lines()} == {"holdfast", "worker"}


def test_second_server_on_a_directory_is_refused(loaded_fleet: Fleet) -> None:
    """A second server on a directory exits, names the process of the first, and does not disturb it."""
    first, wire = loaded_fleet.server()
    job_id = wire.new()
    second = loaded_fleet.start("server", "--data", "data", "--port", "0")
    assert second.wait() == ExitCode.UNREACHABLE
    assert f"in use by process {first.pid}" in second.log
    assert "Traceback" not in second.log
    assert wire.status(job_id).status == public.QUEUED
    assert wire.new() != job_id


@pytest.mark.parametrize("command", ["server", "up"])
def test_port_in_use_is_said_plainly(loaded_fleet: Fleet, command: str) -> None:
    """A server whose port is taken names the port and --port, and its directory stays usable."""
    _, wire = loaded_fleet.server()
    port = wire.target.rpartition(":")[2]
    second = loaded_fleet.start(command, "--data", "other", "--port", port)
    assert second.wait() == ExitCode.UNREACHABLE
    assert f"cannot listen on 127.0.0.1:{port}" in second.log
    assert "--port" in second.log
    assert "Traceback" not in second.log
    loaded_fleet.server(data="other")


def test_term_lets_running_jobs_finish(loaded_fleet: Fleet, tmp_path: Path) -> None:
    """On SIGTERM `holdfast up` waits for its running job, exits with 0, and waiting jobs stay QUEUED."""
    up, wire = app_up(loaded_fleet)
    running, waiting = submit(wire, "thread.hold", tmp_path / "pid", count=2)
    pid_in(tmp_path / "pid")
    up.signal(signal.SIGTERM)
    eventually(lambda: up.lines("draining"))
    (tmp_path / "pid").unlink()
    assert up.wait() == 0
    model = checked(tmp_path / "data")
    assert (model.jobs[running].state, model.jobs[running].attempts) == (public.DONE, 1)
    assert (model.jobs[waiting].state, model.jobs[waiting].attempts) == (public.QUEUED, 0)


def test_second_term_hands_leases_back(loaded_fleet: Fleet, tmp_path: Path) -> None:
    """The server reports NOT_SERVING and waits after one SIGTERM, and after two its job is QUEUED without a loss."""
    up = loaded_fleet.start("up", "--data", "data", "--port", "0", HOLDFAST_DRAIN_MS="3600000")
    wire = loaded_fleet.wire(up.ready()["grpc"])
    job_id = wire.new(ms=3_600_000)
    wire.wait_for(job_id, public.RUNNING)
    wire.wait_for(wire.new(), public.DONE)  # the worker got this job, so it has the one before it too
    up.signal(signal.SIGTERM)
    eventually(wire.health, lambda status: status == NOT_SERVING)
    eventually(lambda: up.lines("draining"), lambda lines: [line["jobs"] for line in lines] == [1])
    assert wire.status(job_id).status == public.RUNNING, "after one SIGTERM the job must still run"
    up.signal(signal.SIGTERM)
    assert up.wait() == 0
    job = checked(tmp_path / "data").jobs[job_id]
    assert (job.state, job.losses) == (public.QUEUED, 0)
    assert revocations(events_in(tmp_path / "data")) == [("released", False)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_server_alone_ends_with_0(fleet: Fleet, number: signal.Signals) -> None:
    """A server exits with 0 on SIGTERM and SIGINT, and its last log line is `stopped`."""
    server, wire = fleet.server()
    wire.new()
    server.signal(number)
    assert server.wait() == 0
    assert server.lines()[-1]["event"] == "stopped"


def test_worker_without_a_server_waits_and_ends_with_0(fleet: Fleet) -> None:
    """A worker without a server keeps trying, logs how to start one, and exits with 0 on SIGTERM."""
    port = stable_port()
    worker = fleet.start("worker", "--connect", f"127.0.0.1:{port}")
    eventually(lambda: len(worker.lines("disconnected")), lambda count: count >= 3)
    assert worker.output == ""
    assert worker.lines("disconnected")[0]["message"].startswith(f"no server answers at 127.0.0.1:{port}: start one")
    assert worker.stop() == 0


def test_no_child_survives_a_killed_parent(loaded_fleet: Fleet) -> None:
    """The worker of `holdfast up` ends when its parent is killed."""
    up, _ = loaded_fleet.up()
    children = up.children()
    assert len(children) == 1
    up.kill()
    try:
        eventually(lambda: all(is_gone(pid) for pid in children), what="the end of its children")
    finally:
        kill_all(children)


def test_killed_worker_of_up_is_started_again(loaded_fleet: Fleet, tmp_path: Path) -> None:
    """`holdfast up` replaces a killed worker, and the worker's job runs again."""
    up, wire = app_up(loaded_fleet, "--lease-ms", "600000")
    job_id = one(wire, "thread.hold", tmp_path / "pid")
    child = pid_in(tmp_path / "pid")
    assert up.children() == [child]
    os.kill(child, signal.SIGKILL)
    eventually(lambda: pid_in(tmp_path / "pid") != child, what="the next worker")
    (tmp_path / "pid").unlink()
    assert wire.wait_for(job_id).status == public.DONE
    assert up.stop() == 0
    assert grants(events_in(tmp_path / "data")) == {job_id: 2}


def test_full_log_pipe_does_not_stop_the_server(fleet: Fleet, tmp_path: Path) -> None:
    """A server whose log pipe is full still answers calls, runs jobs and exits with 0 on SIGTERM."""
    command = [*HOLDFAST, "up", "--data", "data", "--port", "0", "--log-level", "debug"]
    with (tmp_path / "adopted.out").open("wb") as out:
        popen = subprocess.Popen(command, cwd=tmp_path, env=clean_environment({}), stdout=out, stderr=subprocess.PIPE)
    assert popen.stderr is not None
    room_bytes = fcntl.fcntl(popen.stderr, fcntl.F_SETPIPE_SZ, 4_096)
    up = fleet.adopt(popen)
    wire = fleet.wire(up.ready()["grpc"])
    for number in range(100):
        job_id = wire.submit(key=str(number), timeout_s=30).job_id
        with pytest.raises(Exception, match="NOT_FOUND"):
            wire.status("no-such-job-" + "x" * 100, timeout_s=30)
    assert wire.wait_for(job_id).status == public.DONE
    (unread_bytes,) = struct.unpack("i", fcntl.ioctl(popen.stderr, termios.FIONREAD, bytes(4)))
    assert unread_bytes > room_bytes // 2, "the log pipe must be nearly full"
    assert up.stop() == 0
    popen.stderr.close()
