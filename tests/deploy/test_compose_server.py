"""One server in containers: jobs on a volume, two workers of an app, the dashboard, and tokens."""

import json
import socket
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Any

import grpc
import pytest

from tests.deploy.stack import Stack
from tests.e2e.grpc_client import Wire, refusal
from tests.e2e.wait_until import eventually

# The first test also waits for the image.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

GRPC, HTTP = 50051, 8080


class _Line(HTTPConnection):
    """HTTP over a Unix socket that leads to the published port."""

    def __init__(self, path: str) -> None:
        super().__init__("127.0.0.1", HTTP, timeout=90)
        self._path = path

    def connect(self) -> None:
        """Connects to the socket; the Host header stays that of the published port."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


class Http:
    """An HTTP client of the published port, with or without a token."""

    def __init__(self, stack: Stack, token: str = "") -> None:
        self._path = stack.engine.target(HTTP).removeprefix("unix:")
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """Returns the status and the body of a response."""
        line = _Line(self._path)
        try:
            line.request(method, path, None if body is None else json.dumps(body), self._headers)
            answer = line.getresponse()
            return answer.status, answer.read()
        finally:
            line.close()

    def submit(self, **fields: object) -> str:
        """Submits a job; returns its id."""
        status, said = self.ask("POST", "/api/v1/jobs", fields)
        assert status == HTTPStatus.ACCEPTED, said
        return str(json.loads(said)["id"])

    def result(self, job_id: str) -> dict[str, Any]:
        """Waits for the end of a job; returns its result."""
        status, said = self.ask("GET", f"/api/v1/jobs/{job_id}/result?wait_s=60")
        assert status == HTTPStatus.OK, said
        return dict(json.loads(said))


@pytest.fixture(scope="module")
def token(server: Stack) -> str:
    """An operator's token, created with the command of the documents."""
    return server.compose("exec", "-T", "server", "holdfast", "token", "create", "--scopes", "admin").strip()


@pytest.fixture
def http(server: Stack, token: str) -> Http:
    """An operator's client."""
    return Http(server, token)


def test_server_and_workers_become_healthy(server: Stack) -> None:
    """The server and two workers are healthy by their healthchecks."""
    assert server.health() == dict.fromkeys(("server", "worker", "worker-2"), "healthy")


def test_ports_are_published_on_loopback_alone(server: Stack) -> None:
    """Only the server's ports are published, and only on loopback."""
    ports = {name: container["NetworkSettings"]["Ports"] for name, container in server.containers().items()}
    published = {f"{port}/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(port)}] for port in (GRPC, HTTP)}
    assert ports == {"server": published, "worker": {}, "worker-2": {}}


def test_jobs_of_the_app_run_in_the_workers(http: Http) -> None:
    """A job that is submitted over the published port runs in a worker, with the function of the mounted app."""
    job_id = http.submit(type="resize", queue="images", payload={"path": "cat.png", "width": 200})
    ended = http.result(job_id)
    assert (ended["status"], ended["output"]) == ("DONE", "cat.png@200")


def test_two_workers_are_connected(http: Http) -> None:
    """Exactly the two worker containers are connected to the server."""
    status, said = http.ask("GET", "/api/v1/workers")
    assert status == HTTPStatus.OK
    assert len(json.loads(said)["workers"]) == 2


def test_dashboard_is_served_and_asks_for_a_token(server: Stack, http: Http) -> None:
    """The dashboard's page needs no token, but its data does."""
    status, page = Http(server).ask("GET", "/")
    assert (status, b"<html" in page.lower()) == (HTTPStatus.OK, True)
    assert Http(server).ask("GET", "/api/v1/stats")[0] == HTTPStatus.UNAUTHORIZED
    assert http.ask("GET", "/api/v1/stats")[0] == HTTPStatus.OK


def test_clients_without_a_token_are_refused(server: Stack) -> None:
    """The server refuses clients without a token, although it runs with --insecure."""
    wire = Wire(server.engine.target(GRPC))
    try:
        assert refusal(wire.new).code is grpc.StatusCode.UNAUTHENTICATED
    finally:
        wire.close()


def test_workers_token_does_nothing_but_work(server: Stack) -> None:
    """The workers' token can neither submit nor read jobs."""
    theirs = server.run_in("worker", "cat", "/credentials/worker/token").strip()
    for method, path in (("POST", "/api/v1/jobs"), ("GET", "/api/v1/jobs")):
        assert Http(server, theirs).ask(method, path, {"type": "echo"})[0] == HTTPStatus.FORBIDDEN


def test_workers_token_can_be_replaced(server: Stack, http: Http) -> None:
    """After a new token and a restart the server refuses the old token, and jobs run."""
    earlier = server.run_in("worker", "cat", "/credentials/worker/token").strip()
    replace = ("worker", "--replace", "--data", "/var/lib/holdfast", "/credentials")
    server.compose("run", "--rm", "credentials", "python", "-m", "scripts.credentials", *replace)
    server.compose("restart")
    server.wait_until_healthy()
    assert Http(server, earlier).ask("GET", "/api/v1/jobs")[0] == HTTPStatus.UNAUTHORIZED
    assert http.result(http.submit(type="echo", payload="again"))["output"] == "again"


def test_jobs_and_tokens_outlive_all_containers(server: Stack, http: Http) -> None:
    """After `down` and `up` jobs have their results, waiting jobs run, and the tokens are still valid."""
    done = http.submit(type="echo", payload="kept")
    assert http.result(done)["output"] == "kept"
    waiting = http.submit(type="resize", queue="images", payload=["dog.png", 100], delay_s=3)
    server.up_again()
    eventually(lambda: http.ask("GET", "/readyz")[0], HTTPStatus.OK.__eq__)
    assert http.result(done)["output"] == "kept"
    assert http.result(waiting)["output"] == "dog.png@100"


def test_it_goes_down_and_leaves_nothing(server: Stack) -> None:
    """After `down --volumes` no container, network or volume of the project is left."""
    assert server.leftovers()
    server.down()
    assert server.leftovers() == []
