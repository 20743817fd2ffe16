"""`holdfast up --topology pipeline`: one command starts all processes, restarts them and ends them."""

import itertools
import json
import os
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.errors import ExitCode
from tests.e2e.app_jobs import is_gone
from tests.e2e.fleet import Fleet, Program, fleet_in
from tests.e2e.grpc_client import Wire
from tests.e2e.preloaded_prompt import LoadedProgram, LoadedShell
from tests.e2e.wait_until import eventually
from tests.postgres import require_postgres

UP = ("up", "--topology", "pipeline", "--port", "0", "--data", "d")
COUNTS = {"scheduler": 3, "watcher": 3, "exchange": 2, "normal": 2, "high": 2, "coordinator": 1, "worker": 3}
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

@app.job
def broken() -> None:
    raise RuntimeError("it is broken")
"""


class Up:
    """The pipeline, ready."""

    def __init__(self, fleet: Fleet, *arguments: str, **environment: str) -> None:
        self.program: Program = fleet.start(*UP, *arguments, **environment)
        self.ready = self.program.ready()
        self.wire: Wire = fleet.wire(self.ready["grpc"])

    def role(self, name: str, number: int = 0) -> str:
        """Returns the address of one process of a role."""
        return str(self.ready["roles"][name][number])

    def ask(self, address: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - any JSON value
        """Calls a role with the operator's token and returns its JSON response."""
        return curl(address, path, body, Path(self.ready["operator_token"]).read_text().strip())

    def pids(self) -> dict[str, int]:
        """Returns the current pid of each process by name, including PostgreSQL."""
        latest = {line["role"]: line["pid"] for line in self.program.lines("role_ready")}
        return {name: pid for name, pid in latest.items() if Path(f"/proc/{pid}").exists()}

    def schedulers(self, event: str) -> list[str]:
        """Returns the schedulers for which the gateway has logged the event."""
        return [line["scheduler"] for line in self.program.lines(event)]

    def replace(self, role: str) -> None:
        """Kills the process with this role and waits until its replacement is ready."""

        def lives() -> int:
            return [line["role"] for line in self.program.lines("role_ready")].count(role)

        before = lives()
        os.kill(self.pids()[role], signal.SIGKILL)
        eventually(lives, lambda now: now > before, what=f"another {role}")


def curl(address: str, path: str, body: object = None, token: str = "") -> Any:  # noqa: ANN401 - any JSON value
    """Returns the JSON response to a GET, or to a POST if there is a body.

    Retries a 503 with retry-after, which a stalled disk causes for some seconds.
    """
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {})}
    request = urllib.request.Request(f"http://{address}{path}", data, headers)
    return json.loads(eventually(lambda: _answer(request), what=f"an answer of {address}{path}"))


def _answer(request: urllib.request.Request) -> bytes:
    """Returns the body; empty if the request must be retried."""
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - a local address
            body: bytes = answer.read()
            return body
    except urllib.error.HTTPError as error:
        with error:
            if error.code != HTTPStatus.SERVICE_UNAVAILABLE or "retry-after" not in error.headers:
                raise
        return b""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One pipeline for all tests of the module, because it has eighteen processes."""
    require_postgres()
    folder = tmp_path_factory.mktemp("pipeline")
    (folder / "shop.py").write_text(APP)
    with fleet_in(folder) as fleet:
        yield Up(fleet, "--app", "shop:app", HOLDFAST_RETRIES="2", HOLDFAST_RETRY_MS="10")


def test_every_process_of_the_picture_is_there(up: Up) -> None:
    """The ready line has gRPC, HTTP, the database and every role, and the data directory has a private PostgreSQL."""
    assert {name: len(addresses) for name, addresses in up.ready["roles"].items()} == COUNTS
    token = Path(up.ready["operator_token"])
    assert (token, token.stat().st_mode & 0o777) == (Path(up.ready["data"]) / "operator.token", 0o600)
    assert up.ready["database"].startswith("postgresql://")
    eventually(lambda: len(up.pids()), lambda count: count == sum(COUNTS.values()) + 1, what="every process in the log")
    assert (Path(up.ready["data"]) / "postgres" / "data").is_dir()


def test_jobs_are_created_and_found_at_the_gateway(up: Up) -> None:
    """A payload without a job type runs as `echo`, and both HTTP ports find it by status and id."""
    gateway = up.ready["http"]
    made = curl(gateway, "/api/jobs", {"type": "once", "payload": "one time", "priority": "normal"})
    high = curl(gateway, "/api/jobs", {"type": "once", "payload": "high priority one time", "priority": "high"})
    cron = curl(gateway, "/api/jobs", {"type": "cron", "cron_expr": "0 */2", "payload": "every two hours"})
    assert (made["type"], made["priority"], high["priority"], cron["status"]) == ("echo", 5, 8, "active")
    for job_id in (made["job_id"], high["job_id"]):
        eventually(lambda job_id=job_id: curl(gateway, f"/job?job_id={job_id}")["status"], "DONE".__eq__)  # type: ignore[misc]
    (also,) = eventually(lambda: [line["http_also"] for line in up.program.lines("ready") if "http_also" in line])
    assert {made["job_id"], high["job_id"], cron["job_id"]} <= {job["id"] for job in curl(also, "/jobs")["jobs"]}
    assert made["job_id"] in {job["id"] for job in curl(gateway, "/jobs?status=completed")["jobs"]}
    assert curl(gateway, f"/job?job_id={cron['job_id']}")["cron_expr"] == "0 */2"


def test_scheduler_answers_people(up: Up) -> None:
    """Every scheduler reports its health, accepts jobs and finds them, and one of them is the leader."""
    healths = eventually(  # during a change of leadership none or two may claim it
        lambda: [up.ask(address, "/health") for address in up.ready["roles"]["scheduler"]],
        lambda healths: [health["leader"] for health in healths].count(True) == 1,
        what="one leader",
    )
    assert {health["status"] for health in healths} == {"ok"}
    assert {health["database"] for health in healths} == {"reachable"}
    one, other = up.role("scheduler", 0), up.role("scheduler", 1)
    cron = up.ask(one, "/schedule", {"type": "cron", "cron_expr": "30 14", "payload": "at half past two"})
    made = up.ask(one, "/schedule", {"type": "once", "payload": "direct", "delay_s": 3600})
    assert up.ask(other, f"/job?job_id={made['job_id']}")["status"] == "QUEUED"
    assert made["job_id"] in {job["id"] for job in up.ask(other, "/jobs?status=pending")["jobs"]}
    assert cron["job_id"] in {job["id"] for job in up.ask(other, "/jobs?status=active")["jobs"]}
    assert cron["job_id"] in {job["id"] for job in up.ask(other, "/jobs")["jobs"]}


def test_roles_serve_their_stats_and_health(up: Up) -> None:
    """Every role serves its stats and its health under its own paths."""
    paths = {
        "watcher": ("/watcher/stats", "/stats"),
        "exchange": ("/exchange/stats",),
        "normal": ("/queue/stats", "/queue/all", "/queue/peek"),
        "high": ("/queue/stats",),
        "coordinator": ("/coordinator/stats",),
        "worker": ("/worker/stats",),
    }
    for role, shown in paths.items():
        for path in (*shown, "/health"):
            assert isinstance(up.ask(up.role(role), path), dict)
    workers = eventually(
        lambda: up.ask(up.role("coordinator"), "/coordinator/stats")["workers"], lambda found: len(found) == 3
    )
    assert {worker["slots"] for worker in workers} == {5}


def test_tickets_are_leased_by_hand(up: Up) -> None:
    """A queue process accepts, leases, releases and deletes a ticket over HTTP."""
    address, ticket = up.role("normal"), {"job_id": "by-hand", "type": "nobody-runs-this"}
    assert up.ask(address, "/queue/push", ticket)["accepted"] == 1
    take = {"types": ["nobody-runs-this"], "worker_id": "me"}
    assert [job["job_id"] for job in up.ask(address, "/queue/lease", take)["jobs"]] == ["by-hand"]
    assert up.ask(address, "/queue/lease", take)["jobs"] == []
    assert up.ask(address, "/queue/release-lease", {"job_id": "by-hand"}) == {"released": 1}
    assert "by-hand" in {job["job_id"] for job in up.ask(address, "/queue/all")["jobs"]}
    assert up.ask(address, "/queue/delete", {"job_id": "by-hand"}) == {"deleted": 1}


def test_jobs_of_an_app_and_of_the_frozen_contract_run(up: Up) -> None:
    """The pipeline runs jobs of the SDK and of taskqueue.v1, which see neither database address nor token."""
    with Holdfast(f"holdfast://{up.ready['grpc']}") as client:
        assert client.submit("double", [21]).result(timeout_s=60) == 42
        variables = client.submit("variables", []).result(timeout_s=60)
    assert {"HOLDFAST_DATABASE", "SERVICE_TOKEN"}.isdisjoint(variables)
    up.wire.done("frozen")


def test_job_that_keeps_failing_is_dead_after_its_retries(up: Up) -> None:
    """A job that keeps failing ends FAILED after the configured retries and is listed as dead."""
    gateway = up.ready["http"]
    job_id = curl(gateway, "/api/jobs", {"job_type": "broken", "payload": []})["job_id"]
    eventually(lambda: curl(gateway, f"/job?job_id={job_id}")["status"], "FAILED".__eq__)
    job = curl(gateway, f"/job?job_id={job_id}")
    assert (job["attempts"], job["max_attempts"]) == (3, 3)
    assert job_id in {one["id"] for one in curl(gateway, "/jobs?status=dead")["jobs"]}


def test_history_of_a_job_is_told_over_http_and_by_the_program(up: Up, tmp_path: Path, loaded: LoadedProgram) -> None:
    """HTTP and `job history` return every attempt with its worker, and the gateway declares the capability."""
    gateway = up.ready["http"]
    job_id = curl(gateway, "/api/jobs", {"job_type": "broken", "payload": []})["job_id"]
    eventually(lambda: curl(gateway, f"/job?job_id={job_id}")["status"], "FAILED".__eq__)
    entries = curl(gateway, f"/api/v1/jobs/{job_id}/history")["entries"]
    ends = ["granted", "to be retried"] * 2 + ["granted", "finished"]
    assert [entry["what"] for entry in entries] == ["submitted", *ends]
    assert all(entry["worker_id"] for entry in entries[1:])
    assert "history" in curl(gateway, "/api/v1/capabilities")["capabilities"]
    shell = LoadedShell(loaded, tmp_path)
    shown = shell.run("job", "history", job_id, "--connect", f"holdfast://{up.ready['grpc']}", "--json")
    assert shown.returncode == 0, shown.stderr
    assert [entry["token"] for entry in json.loads(shown.stdout)] == [entry["token"] for entry in entries]
    assert shown.stdout.count('"reason": "RuntimeError: it is broken"') == 3


def test_every_transition_is_logged_by_the_process_that_made_it(up: Up) -> None:
    """Every process logs the transitions it makes, with states, worker, attempt, time and priority."""
    gateway = up.ready["http"]
    body = {"job_type": "broken", "payload": [], "priority": "high"}
    job_id = curl(gateway, "/api/jobs", body)["job_id"]
    eventually(lambda: curl(gateway, f"/job?job_id={job_id}")["status"], "FAILED".__eq__)

    def lines() -> list[dict[str, Any]]:
        found = [line for line in up.program.lines("transition") if line["job_id"] == job_id]
        return sorted(found, key=lambda line: (line["attempt"], line["ts_ms"], line["new_state"] != "RUNNING"))

    told = eventually(lines, lambda found: len(found) == 7, what="seven transitions")
    assert [(line["old_state"], line["new_state"], line["attempt"], line["service"]) for line in told] == [
        ("", "QUEUED", 0, "scheduler"),
        ("QUEUED", "RUNNING", 1, "worker"),
        ("RUNNING", "QUEUED", 1, "worker"),
        ("QUEUED", "RUNNING", 2, "worker"),
        ("RUNNING", "QUEUED", 2, "worker"),
        ("QUEUED", "RUNNING", 3, "worker"),
        ("RUNNING", "FAILED", 3, "worker"),
    ]
    assert all(line["worker_id"] for line in told[1:])
    assert {line["priority"] for line in told} == {8}
    assert all(line["ts_ms"] > 0 and line["level"] == "info" for line in told)


def test_frozen_contract_holds_while_a_scheduler_dies(up: Up) -> None:
    """The gateway drops a dead scheduler and takes it back after its restart, and clients get only valid responses."""
    role = f"scheduler-{up.role('scheduler').rpartition(':')[2]}"
    address = up.role("scheduler")
    taken_in = up.schedulers("scheduler_taken_in").count(address)
    jobs: dict[str, str] = {}
    stopping = threading.Event()

    def submit(client: int) -> None:
        for number in itertools.count():
            if stopping.is_set():
                return
            key = f"c{client}-{number}"
            jobs[key] = up.wire.done(key)

    with ThreadPoolExecutor() as pool:
        clients = [pool.submit(submit, client) for client in range(2)]
        eventually(lambda: len(jobs) > 20)
        left_out = up.schedulers("scheduler_left_out").count(address)
        while up.schedulers("scheduler_left_out").count(address) == left_out:
            up.replace(role)  # a gateway that stalls during the restart does not notice it
        eventually(lambda: up.schedulers("scheduler_taken_in").count(address) > taken_in)
        stopping.set()
        for client in clients:
            client.result()
    assert len(set(jobs.values())) == len(jobs)
    for key, job_id in jobs.items():
        assert up.wire.done(key) == job_id
        assert up.wire.result(job_id).output_bytes == b"." * 10


def test_stop_leaves_nothing_behind(up: Up) -> None:
    """SIGTERM lets the workers finish, then ends all other processes and removes the operator's token."""
    pids = [*up.pids().values(), *up.program.children()]
    up.wire.running(ms=300)
    assert up.program.stop() == 0
    assert all(map(is_gone, pids))
    stopped = [line["service"] for line in up.program.lines("stopped")]
    assert stopped.index("gateway") < stopped.index("queue") < stopped.index("scheduler")
    errors = [line for line in up.program.lines() if line["level"] in {"error", "critical"}]
    assert {line["event"] for line in errors} <= {"job_failed"}  # from the jobs that fail on purpose
    assert not Path(up.ready["operator_token"]).exists()


def test_role_that_cannot_start_names_the_setting(tmp_path: Path, loaded: LoadedProgram) -> None:
    """A role without a database, with an invalid address or on an open host exits and names the setting."""
    shell = LoadedShell(loaded, tmp_path)
    lost = shell.run("pipeline", "scheduler", "--port", "0")
    assert (lost.returncode, "HOLDFAST_DATABASE" in lost.stderr) == (ExitCode.USAGE, True)
    strange = shell.run("pipeline", "gateway", "--schedulers", "8081,nowhere")
    assert (strange.returncode, "--schedulers" in strange.stderr) == (ExitCode.USAGE, True)
    open_door = shell.run("pipeline", "queue", "--port", "0", "--host", "0.0.0.0")  # noqa: S104 - refused
    assert (open_door.returncode, "--insecure" in open_door.stderr) == (ExitCode.USAGE, True)
