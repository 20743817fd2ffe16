"""Every role and every route of the pipeline over the wire: with the right token, with a wrong one, and with none.

Paths and methods are queried from the roles, so that new routes are covered.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from holdfast.errors import ExitCode
from tests.e2e.fleet import Fleet, fleet_in
from tests.e2e.test_pipeline_up import Up
from tests.postgres import require_postgres

OPEN = {"/health", "/livez", "/readyz"}
TOLD, DENIED, UNKNOWN = HTTPStatus.OK, HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED
#: Allowed paths per role and caller, written independently of the product; the operator may call all of them.
ALLOWED = {
    "scheduler": {"gateway": "/ports/ /schedule /jobs /job /metrics"},
    "watcher": {},
    "exchange": {"watcher": "/exchange/push /exchange/room"},
    "normal": {
        "exchange": "/queue/push /queue/room",
        "worker": "/queue/lease /queue/release-lease /queue/delete",
    },
    "coordinator": {
        "worker": "/coordinator/request-assignment /coordinator/heartbeat /coordinator/presence"
        " /coordinator/release-assignment"
    },
    "worker": {},
}
ALLOWED["high"] = ALLOWED["normal"]


def answer(method: str, address: str, path: str, token: str = "") -> tuple[int, str, str]:
    """Returns the status, the allowed methods and the body."""
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {})}
    data = b"" if method == "POST" else None
    request = urllib.request.Request(f"http://{address}{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as given:  # noqa: S310 - a local address
            body = given.read() if "content-length" in given.headers else b""  # otherwise an endless stream
            return given.status, given.headers.get("allow", ""), body.decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers.get("allow", ""), error.read().decode()


def routes(address: str) -> list[tuple[str, str]]:
    """Returns every method and path of the process, as reported by the process."""
    words = json.loads(answer("GET", address, "/nowhere")[2])["detail"].partition(" process has ")[2]
    paths = words.split(", ")
    found = [(method, path) for path in paths for method in answer("OPTIONS", address, path)[1].split(", ")]
    return [(method, path) for method, path in found if method not in {"OPTIONS", "HEAD"}]


class Guarded(Up):
    """The pipeline, with the token of each caller."""

    fleet: Fleet

    def token(self, role: str) -> str:
        """Returns the token from the environment of a process of this role."""
        pid = next(pid for name, pid in self.pids().items() if name.partition("-")[0] == role)
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return next(line.partition(b"=")[2].decode() for line in environment if line.startswith(b"SERVICE_TOKEN="))

    @property
    def database(self) -> str:
        """The address of the private PostgreSQL."""
        return f"postgresql://holdfast@/holdfast?host={self.ready['data']}/postgres/socket"

    def rows(self) -> list[list[tuple[object, ...]]]:
        """Returns the rows of jobs and queues in the database."""
        with psycopg.connect(self.database) as connection:
            tables = ("jobs", "executions", "completed", "failed", "schedules", "queues")
            queries = [sql.SQL("SELECT * FROM holdfast.{} ORDER BY 1").format(sql.Identifier(name)) for name in tables]
            return [connection.execute(query).fetchall() for query in queries]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """One pipeline for all tests of the module, because it has eighteen processes."""
    require_postgres()
    with fleet_in(tmp_path_factory.mktemp("callers")) as fleet:
        found = Guarded(fleet)
        found.fleet = fleet
        yield found


@pytest.mark.parametrize("role", sorted(ALLOWED))
@pytest.mark.parametrize("token", ["", "stranger-" + "t" * 32], ids=["none", "unknown"])
def test_caller_without_a_token_of_the_pipeline_is_refused(guarded: Guarded, role: str, token: str) -> None:
    """Every role refuses a missing or unknown token on every route but the health routes, and nothing is written."""
    before = guarded.rows()
    for address in guarded.ready["roles"][role]:
        found = routes(address)
        assert len(found) > len(OPEN)
        refused = {path for method, path in found if answer(method, address, path, token)[0] == UNKNOWN}
        assert refused == {path for _, path in found} - OPEN
    assert guarded.rows() == before


def test_refusal_says_where_the_operators_token_is(guarded: Guarded) -> None:
    """The refusal of a call without a token names the file with the operator's token."""
    status, _, body = answer("GET", guarded.ready["roles"]["scheduler"][0], "/metrics")
    assert status == UNKNOWN
    assert Path(guarded.ready["operator_token"]).name in body


@pytest.mark.parametrize("caller", ["gateway", "watcher", "exchange", "worker"])
@pytest.mark.parametrize("role", sorted(ALLOWED))
def test_role_accepts_other_roles_only_on_their_routes(guarded: Guarded, role: str, caller: str) -> None:
    """A role allows the token of another role only on the routes for that role."""
    address, token = guarded.role(role), guarded.token(caller)
    allowed = ALLOWED[role].get(caller, "").split()
    for method, path in routes(address):
        if path not in OPEN:
            may = any(path == one or (one.endswith("/") and path.startswith(one)) for one in allowed)
            status = answer(method, address, path, token)[0]
            assert (status not in {UNKNOWN, DENIED}) == may, f"{caller}: {method} {path} gave {status}"


@pytest.mark.parametrize("role", sorted(ALLOWED))
def test_operator_reads_every_number(guarded: Guarded, role: str) -> None:
    """The operator's token from the file in the ready line opens the stats and metrics of every role."""
    token = Path(guarded.ready["operator_token"]).read_text().strip()
    shown = [path for method, path in routes(guarded.role(role)) if method == "GET" and path.endswith(("stats", "ics"))]
    assert "/metrics" in shown
    for path in shown:
        assert answer("GET", guarded.role(role), path, token)[0] == TOLD


def test_tokens_stand_on_no_command_line(guarded: Guarded) -> None:
    """No token occurs on a command line, which every user can read, or in the log."""
    tokens = [guarded.token(role) for role in ("gateway", "watcher", "exchange", "worker")]
    assert len(set(tokens)) == len(tokens)
    for pid in guarded.pids().values():
        words = Path(f"/proc/{pid}/cmdline").read_text()
        assert not [token for token in tokens if token in words]
    assert not [token for token in tokens if token in guarded.program.log]


def test_worker_without_a_token_ends_and_says_why(guarded: Guarded) -> None:
    """A worker started by hand without a token exits and names SERVICE_TOKEN, and starts with the operator's token."""
    arguments = ("pipeline", "worker", "--port", "0", "--coordinator", guarded.role("coordinator"))
    database = {"HOLDFAST_DATABASE": guarded.database}
    refused = guarded.fleet.start(*arguments, "--worker-id", "stranger", **database)
    assert refused.wait() == ExitCode.REFUSED
    assert "SERVICE_TOKEN" in refused.log
    known = guarded.fleet.start(
        *(*arguments, "--worker-id", "known"), **database, SERVICE_TOKEN_FILE=guarded.ready["operator_token"]
    )
    assert known.ready()["event"] == "ready"
    assert known.stop() == 0


def test_gateway_whose_token_is_refused_says_so(guarded: Guarded) -> None:
    """A gateway without a valid service token answers its clients 503 and names SERVICE_TOKEN."""
    gateway = guarded.fleet.start(
        *("pipeline", "gateway", "--port", "0", "--grpc-port", "0", "--schedulers", guarded.role("scheduler"))
    )
    status, _, body = answer("GET", gateway.ready()["http"], "/jobs")
    assert status == HTTPStatus.SERVICE_UNAVAILABLE
    assert "SERVICE_TOKEN" in body
    assert gateway.stop() == 0


def test_role_names_the_variables_of_invalid_credentials(tmp_path: Path) -> None:
    """A role with invalid credentials names both variables and prints no secret."""
    with fleet_in(tmp_path) as fleet:
        queue = fleet.start("pipeline", "queue", "--port", "0", SERVICE_TOKEN="short", SERVICE_TOKEN_HASHES="queue:1")
        assert queue.wait() == ExitCode.USAGE
        assert "SERVICE_TOKEN must be 32 to 256" in queue.log
        assert "SERVICE_TOKEN_HASHES must be role:hash" in queue.log
        assert "short" not in queue.log


def test_role_without_hashes_says_that_nothing_protects_it(fleet: Fleet) -> None:
    """A role without token hashes serves on loopback and logs a warning."""
    queue = fleet.start("pipeline", "queue", "--port", "0")
    address = queue.ready()["http"]
    assert answer("GET", address, "/queue/stats")[0] == TOLD
    assert [line["level"] for line in queue.lines("unprotected")] == ["warning"]
