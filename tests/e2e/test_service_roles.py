"""Each microservice alone: environment, ready line, shutdown and listening addresses."""

import json
import os
import signal
import socket
import urllib.request
from pathlib import Path

import grpc
import pytest

from holdfast.errors import ExitCode
from holdfast.server.auth.service_tokens import hash_of
from tests.e2e.fleet import Fleet, Program
from tests.e2e.wait_until import eventually

SERVING = 1
NOWHERE = "127.0.0.1:1"
OWNERS = {"JOB_SERVICE_ADDR": NOWHERE, "QUEUE_SERVICE_ADDR": NOWHERE, "RESULT_SERVICE_ADDR": NOWHERE}
#: The required variables of each role.
TOLD = {
    "gateway": {"GATEWAY_PORT": "0", **OWNERS},
    "job": {"JOB_PORT": "0"},
    "queue": {"QUEUE_PORT": "0"},
    "coordinator": {"COORDINATOR_PORT": "0", **OWNERS},
    "result": {"RESULT_PORT": "0"},
}
PRIVATE = {
    "gateway": "taskqueue.v1.TaskQueuePublicService",
    "job": "taskqueue.internal.v1.JobInternalService",
    "queue": "taskqueue.internal.v1.QueueInternalService",
    "coordinator": "taskqueue.internal.v1.CoordinatorInternalService",
    "result": "taskqueue.internal.v1.ResultInternalService",
}
#: An invalid value for each variable; None leaves the variable out.
WRONG: dict[str, list[tuple[str, str | None]]] = {
    "gateway": [
        ("GATEWAY_PORT", "gate"),
        ("GATEWAY_HTTP_PORT", "none"),
        ("JOB_SERVICE_ADDR", None),
        ("QUEUE_SERVICE_ADDR", "queue"),
        ("RESULT_SERVICE_ADDR", "result:x"),
    ],
    "job": [("JOB_PORT", "70000"), ("MAX_DEDUP_KEYS", "-5"), ("LOG_LEVEL", "LOUD")],
    "queue": [("QUEUE_PORT", ""), ("SERVICE_TOKEN_HASHES", "gateway:1234")],
    "coordinator": [
        ("COORDINATOR_PORT", "-1"),
        ("JOB_SERVICE_ADDR", ":50052"),
        ("QUEUE_SERVICE_ADDR", None),
        ("RESULT_SERVICE_ADDR", ""),
        ("HEARTBEAT_INTERVAL_MS", "1s"),
        ("WORKER_TIMEOUT_MS", "soon"),
    ],
    "result": [("RESULT_PORT", "5e4"), ("MAX_OUTPUT_BYTES", "256KiB")],
    "worker": [
        ("COORDINATOR_ADDR", None),
        ("COORDINATOR_ADDR", "coordinator"),
        ("WORKER_ID", "a worker"),
        ("WORKER_SLOTS", "0"),
        ("HEARTBEAT_INTERVAL_MS", "never"),
    ],
}


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


def service(fleet: Fleet, role: str, *arguments: str, **environment: str) -> Program:
    return fleet.start("service", role, *arguments, **{**TOLD[role], **environment})


def refused(program: Program) -> list[str]:
    """Returns the error lines of a program that must exit with a usage error."""
    assert program.wait() == ExitCode.USAGE, program.log
    assert program.output == ""
    return program.log.splitlines()


@pytest.mark.parametrize("role", TOLD)
def test_service_alone_is_ready_healthy_and_ends_in_good_order(fleet: Fleet, role: str) -> None:
    """A service prints one ready line, answers health checks by name, and exits with 0 on SIGTERM."""
    program = service(fleet, role)
    ready = program.ready()
    ports = ("grpc", "wire") if role == "gateway" else ("grpc",)
    assert ready == {"event": "ready", "service": role, **{port: ready[port] for port in ports}, "pid": program.pid}
    wire = fleet.wire(ready["grpc"])
    assert [wire.health(), wire.health(PRIVATE[role])] == [SERVING, SERVING]
    assert [line["grpc"] for line in eventually(lambda: program.lines("ready"))] == [ready["grpc"]]
    assert program.stop() == 0
    assert {line["service"] for line in program.lines()} == {role}
    assert [line["event"] for line in program.lines()][-1] == "stopped"


@pytest.mark.parametrize("role", WRONG)
def test_wrong_or_missing_variable_ends_a_service_with_one_line(fleet: Fleet, role: str) -> None:
    """A service exits on an invalid or missing variable with one line: its name, the expected and the given value."""
    started = []
    for name, value in WRONG[role]:
        told = {"COORDINATOR_ADDR": NOWHERE} if role == "worker" else TOLD[role]
        environment = {**told, name: value} if value is not None else {key: told[key] for key in told if key != name}
        started.append((name, value, fleet.start("service", role, **environment)))
    for name, value, program in started:
        (line,) = refused(program)
        assert line.startswith(f"holdfast: {name} must be ")
        assert line.endswith("got none: it is required" if value is None else f"got {value!r}")


def test_every_mistake_has_a_line(fleet: Fleet) -> None:
    """A service reports all invalid variables at once, one line each."""
    lines = refused(fleet.start("service", "coordinator", WORKER_TIMEOUT_MS="x"))
    names = ["JOB_SERVICE_ADDR", "QUEUE_SERVICE_ADDR", "RESULT_SERVICE_ADDR", "WORKER_TIMEOUT_MS"]
    assert [line.split()[1] for line in lines] == names


@pytest.mark.parametrize(
    ("role", "option", "roles"),
    [
        ("gateway", ("--data", "d"), "job, queue, result"),
        ("queue", ("--slots", "3"), "worker"),
        ("result", ("--app", "a:b"), "worker"),
        ("job", ("--reflection",), "gateway"),
        ("queue", ("--tls-cert", "x"), "gateway"),
    ],
)
def test_option_of_another_role_is_a_mistake(fleet: Fleet, role: str, option: tuple[str, ...], roles: str) -> None:
    """A service refuses an option that only other roles use."""
    (line,) = refused(service(fleet, role, *option))
    assert line == f"holdfast: {option[0]} is an option of {roles}, not of {role}"


def test_unprotected_service_stays_on_loopback(fleet: Fleet) -> None:
    """A service without token hashes refuses a non-loopback address unless --insecure is given, and then warns."""
    everywhere = ("--host", "0.0.0.0")  # noqa: S104 - the service must refuse it
    bare, told, guarded = (
        service(fleet, "queue", *everywhere),
        service(fleet, "queue", *everywhere, "--insecure"),
        service(fleet, "queue", *everywhere, SERVICE_TOKEN_HASHES=f"gateway:{hash_of('x' * 32)}"),
    )
    assert bare.wait() == ExitCode.USAGE
    assert "--host must be a loopback address unless --insecure is given, got '0.0.0.0'" in bare.log
    assert told.ready()["grpc"].startswith("0.0.0.0:")
    assert [line["level"] for line in eventually(lambda: told.lines("unprotected"))] == ["warning"]
    assert guarded.ready()["grpc"].startswith("0.0.0.0:")
    assert guarded.stop() == 0
    assert guarded.lines("unprotected") == []


def test_credentials_may_stand_in_files(fleet: Fleet, tmp_path: Path) -> None:
    """A service reads its token hashes from the given file, and does not start if the file is missing."""
    hashes = tmp_path / "hashes"
    files = {"SERVICE_TOKEN_HASHES_FILE": str(hashes)}
    (line,) = refused(service(fleet, "queue", **files))
    assert line.startswith("holdfast: SERVICE_TOKEN_HASHES_FILE must name a file with the value of")
    assert line.endswith(f"got {str(hashes)!r}: No such file or directory")
    hashes.write_text(f"gateway:{hash_of('x' * 32)}\n")
    guarded = service(fleet, "queue", **files)
    dequeue = fleet.wire(guarded.ready()["grpc"]).channel.unary_unary(f"/{PRIVATE['queue']}/DequeueJob", bytes, bytes)
    for shown, code in ((), grpc.StatusCode.UNAUTHENTICATED), ("x" * 32, grpc.StatusCode.PERMISSION_DENIED):
        with pytest.raises(grpc.RpcError) as caught:
            dequeue(b"", metadata=(("authorization", f"Bearer {shown}"),) if shown else (), timeout=20)
        assert caught.value.code() is code


def test_gateway_stays_on_loopback_even_with_a_token(fleet: Fleet) -> None:
    """A gateway refuses a non-loopback address even with a service token, which does not protect its clients."""
    program = service(fleet, "gateway", "--host", "0.0.0.0", SERVICE_TOKEN="x" * 32)  # noqa: S104 - refused
    (line,) = refused(program)
    assert "--host must be a loopback address unless --insecure is given, got '0.0.0.0'" in line


def test_gateway_alone_serves_http_where_it_is_told_to(fleet: Fleet) -> None:
    """A gateway serves HTTP only if it has a port for it, and is ready and alive without the owners, with warnings."""
    assert "http" not in service(fleet, "gateway").ready()
    ready = service(fleet, "gateway", GATEWAY_HTTP_PORT="0").ready()
    assert list(ready) == ["event", "service", "grpc", "http", "pid"]
    for path, word in (("livez", b"alive"), ("readyz", b"ready")):
        with urllib.request.urlopen(f"http://{ready['http']}/{path}", timeout=60) as answer:
            lines = answer.read().splitlines()
        assert lines[0] == word
    assert lines[1:] == [f"warning: the {name} service does not answer".encode() for name in ("job", "queue", "result")]


def test_port_that_is_taken_is_named(fleet: Fleet) -> None:
    """A service whose port is taken names the address and exits."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        program = service(fleet, "result", RESULT_PORT=str(port))
        assert program.wait() == ExitCode.UNREACHABLE
    assert f"cannot listen on 127.0.0.1:{port}" in program.log


@pytest.mark.parametrize("role", ["job", "queue", "result"])
def test_owner_has_a_directory_of_its_own_to_itself(fleet: Fleet, tmp_path: Path, role: str) -> None:
    """Each owner has a subdirectory of its own, and refuses a second process on it."""
    first = service(fleet, role, "--data", "kept")
    assert first.ready()["data"] == str(tmp_path / "kept")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == [role]
    second = service(fleet, role, "--data", "kept")
    assert second.wait() == ExitCode.UNREACHABLE
    assert str(first.pid) in second.log
    assert first.stop() == 0


def test_directory_that_cannot_be_used_is_named(fleet: Fleet, tmp_path: Path) -> None:
    """A service refuses a data path that is not a directory."""
    (tmp_path / "file").write_text("")
    program = service(fleet, "queue", "--data", "file")
    assert program.wait() == ExitCode.REFUSED
    assert "cannot be the data directory" in program.log


def test_worker_logs_its_first_heartbeat_and_waits_for_its_coordinator(fleet: Fleet) -> None:
    """A worker without a coordinator keeps trying under the host's name and prints no ready line."""
    worker = fleet.start("service", "worker", COORDINATOR_ADDR=NOWHERE)
    (line,) = eventually(lambda: worker.lines("first_heartbeat"))
    assert (line["service"], line["worker_id"]) == ("worker", socket.gethostname())
    eventually(lambda: worker.lines("disconnected"))
    assert worker.output == ""
    assert worker.stop() == 0


def test_worker_serves_a_coordinator(fleet: Fleet) -> None:
    """A worker prints its ready line with its id once the coordinator has answered."""
    owners = {f"{role.upper()}_SERVICE_ADDR": service(fleet, role) for role in ("job", "queue", "result")}
    addresses = {name: program.ready()["grpc"] for name, program in owners.items()}
    coordinator = service(fleet, "coordinator", **addresses).ready()["grpc"]
    worker = fleet.start("service", "worker", COORDINATOR_ADDR=coordinator, WORKER_ID="w-1")
    ready = worker.ready()
    assert ready == {
        "event": "ready",
        "service": "worker",
        "worker_id": "w-1",
        "grpc": coordinator,
        "pid": worker.pid,
    }
    worker.signal(signal.SIGINT)
    assert worker.wait() == 0


def test_token_is_shown_in_no_log(fleet: Fleet) -> None:
    """A service never logs its token, not even at debug level."""
    token = os.urandom(16).hex()
    program = service(fleet, "gateway", SERVICE_TOKEN=token, LOG_LEVEL="debug")
    wire = fleet.wire(program.ready()["grpc"])
    with pytest.raises(Exception, match="does not answer"):
        wire.status("0190a5d2-0000-7000-8000-000000000000")
    assert program.stop() == 0
    assert json.dumps(token) not in program.log
    assert token not in program.log
