"""The HTTP gateway of a real server: address, jobs and shutdown."""

import json
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.fleet import Fleet, stable_port
from tests.e2e.wait_until import eventually


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


def asked(address: str, path: str, content: object = None) -> Any:  # noqa: ANN401 - any JSON
    """Returns the JSON response to a GET, or to a POST if there is content."""
    data = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(f"http://{address}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return json.loads(answer.read())


def test_job_that_is_posted_runs(fleet: Fleet) -> None:
    """A job posted to the HTTP address of the ready line runs and is visible over gRPC."""
    program, wire = fleet.up()
    address = program.ready()["http"]
    payload = {"text": "é\u2028<script>", "numbers": [1, 2.5, -0.0, 10**20], "nothing": None}
    job_id = asked(address, "/api/v1/jobs", {"type": "echo", "payload": payload})["id"]
    result = asked(address, f"/api/v1/jobs/{job_id}/result?wait_s=60")
    assert (result["status"], result["output"]) == ("DONE", payload)
    assert wire.status(job_id).status == public.DONE


def test_posted_job_runs_a_function_of_an_app(fleet: Fleet) -> None:
    """A posted job gets its payload as named or positional arguments, and fails with a reason if they do not match."""
    (fleet.folder / "posted.py").write_text(
        "from holdfast import Holdfast\n\napp = Holdfast('memory://')\n\n\n"
        "@app.job\ndef join(a: str, b: str = '!') -> str:\n    return a + b\n"
    )
    program, _ = fleet.up("-A", "posted:app")
    address = program.ready()["http"]
    payloads: list[object] = [{"a": "x", "b": "y"}, {"a": "x"}, ["x", "y"], ["x"], [], {"a": 1}]
    jobs = [{"type": "join", "payload": payload} for payload in payloads]
    rows = asked(address, "/api/v1/jobs", {"jobs": jobs})["jobs"]
    ended = [asked(address, f"/api/v1/jobs/{row['id']}/result?wait_s=60") for row in rows]
    assert [one["output"] for one in ended[:4]] == ["xy", "x!", "xy", "x!"]
    assert [one["status"] for one in ended[4:]] == ["FAILED", "FAILED"]
    assert "'a'" in ended[4]["failure_reason"]


def test_port_that_is_taken_stops_the_start(fleet: Fleet) -> None:
    """A server whose HTTP port is taken names the option, exits and releases its directory."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        program = fleet.start("server", "--data", "data", "--port", "0", "--http-port", str(port))
        assert program.wait() == 3
    assert f"cannot serve HTTP on 127.0.0.1:{port}" in program.log
    assert "--http-port" in program.log
    fleet.server()


def test_server_without_http_has_none(fleet: Fleet) -> None:
    """A server with --no-http serves gRPC only and has no HTTP address in its ready line."""
    program, wire = fleet.server("--no-http")
    assert "http" not in program.ready()
    assert wire.new()


def test_port_is_the_one_that_was_asked_for(fleet: Fleet) -> None:
    """A server uses the given HTTP port and refuses one that equals its gRPC port."""
    port = stable_port()
    program, _ = fleet.server("--http-port", str(port))
    assert program.ready()["http"] == f"127.0.0.1:{port}"
    same = fleet.start("server", "--data", "other", "--port", str(port), "--http-port", str(port))
    assert same.wait() == 2
    assert "--http-port must differ from --port" in same.log


@pytest.mark.parametrize("is_listening", [False, True])
def test_stop_ends_in_good_order(fleet: Fleet, is_listening: bool) -> None:  # noqa: FBT001
    """A stopping server ends event streams, answers waiting result requests with 503, and exits with 0."""
    program, wire = fleet.server()
    address = program.ready()["http"]
    job_id = wire.new()
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as line:
        path = "/api/v1/events" if is_listening else f"/api/v1/jobs/{job_id}/result?wait_s=60"
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
        if is_listening:
            assert line.recv(15) == b"HTTP/1.1 200 OK"
        eventually(lambda: _is_read(line), what="a server that has read the request")
        program.signal(signal.SIGTERM)
        said = b""
        while part := line.recv(65_536):
            said += part
    assert said.endswith(b"0\r\n\r\n") if is_listening else b"HTTP/1.1 503 " in said
    assert program.wait() == 0


def _is_read(line: socket.socket) -> bool:
    """Whether the peer has received and read everything sent over the connection, according to the kernel."""
    ours, theirs = line.getsockname()[1], line.getpeername()[1]
    unsent, _ = _queued_bytes(ours, theirs)
    if unsent:  # still in transit: the receive queue cannot show it yet
        return False
    _, unread = _queued_bytes(theirs, ours)
    return unread == 0


def _queued_bytes(port: int, other: int) -> tuple[int, int]:
    """Returns the unacknowledged and the unread bytes of one end of a connection."""
    ends = [f"0100007F:{number:04X}" for number in (port, other)]
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()]
    (queued,) = [row[4] for row in rows if row[1:3] == ends]
    sent, _, come = queued.partition(":")
    return int(sent, 16), int(come, 16)


def test_jobs_over_http_survive_a_kill(fleet: Fleet) -> None:
    """Jobs acknowledged over HTTP survive a kill of the server, with their request ids."""
    program, _ = fleet.server()
    made = [
        asked(program.ready()["http"], "/api/v1/jobs", {"type": "echo", "request_id": f"k{n}"})["id"] for n in range(20)
    ]
    program.kill()
    again, _ = fleet.server()
    address = again.ready()["http"]
    assert {job["id"] for job in asked(address, "/api/v1/jobs?oldest_first=true")["jobs"]} == set(made)
    assert asked(address, "/api/v1/jobs", {"type": "echo", "request_id": "k7"})["id"] == made[7]


def test_flood_of_nonsense_leaves_the_server_whole(fleet: Fleet) -> None:
    """After hundreds of malformed requests the server has closed their connections and still runs jobs."""
    program, _ = fleet.up()
    address = program.ready()["http"]
    host, _, port = address.rpartition(":")
    before = _descriptors(program.pid)
    for n in range(300):
        with socket.create_connection((host, int(port)), timeout=60) as line:
            line.sendall(b"GET / HTTP/1.1\r\nX: " + bytes([n % 256]) * n + b"\r\n" * (n % 3))
    job_id = asked(address, "/api/v1/jobs", {"type": "echo", "payload": 1})["id"]
    assert asked(address, f"/api/v1/jobs/{job_id}/result?wait_s=60")["output"] == 1
    eventually(lambda: _descriptors(program.pid), lambda count: count <= before + 10, "the end of every connection")


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_unknown_path_is_a_problem(fleet: Fleet) -> None:
    """The server answers an unknown path with a problem and the reason PATH_UNKNOWN."""
    program, _ = fleet.server()
    with pytest.raises(urllib.error.HTTPError) as error:
        asked(program.ready()["http"], "/nothing")
    with error.value:
        assert json.loads(error.value.read())["reason"] == "PATH_UNKNOWN"
