"""HTTP of the multi-process topologies: the same API and scopes, and clear errors for missing capabilities."""

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.owner import owner_index
from tests.e2e.fleet import Fleet, Program
from tests.e2e.http_requests import Reply, ask
from tests.e2e.nodes import NodeSet
from tests.e2e.preloaded_fleet import loaded_fleet_in
from tests.e2e.preloaded_prompt import LoadedProgram, LoadedShell
from tests.e2e.wait_until import eventually
from tests.integration.made_certificates import Authority

UP = {
    "microservices": ("up", "--topology", "microservices", "--port", "0"),
    "monolith": ("up", "--topology", "monolith", "--port", "0", "--nodes", "2"),
}
JOB = "/api/v1/jobs/00000000-0000-4000-8000-000000000000"
#: Paths that need a capability which the topology lacks.
MISSING: dict[str, dict[str, tuple[str, ...]]] = {
    "microservices": {
        "administration": ("/api/v1/stats", "/api/v1/queues", "/api/v1/workers"),
        "feed": ("/api/v1/events",),
        "history": (f"{JOB}/history",),
        "schedules": ("/api/v1/schedules", "/api/v1/schedules/x"),
        "totals": ("/api/v1/stats/recent",),
        **dict.fromkeys(("notes", "sessions", "workers"), ()),
    },
    "monolith": {"feed": ("/api/v1/events",), "order": (), "totals": ("/api/v1/stats/recent",)},
}


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


def look(http: str, path: str) -> Reply:
    """Returns the response to a GET; retries while a stalled node causes 503 or 504."""
    return eventually(lambda: ask(http, path), lambda reply: reply.status not in {503, 504})


class Site:
    """One topology that is ready."""

    def __init__(self, fleet: Fleet, topology: str) -> None:
        self.topology = topology
        self.program: Program = fleet.start(*UP[topology])
        self.http: str = self.program.ready()["http"]

    def ask(self, path: str, body: object = None) -> Reply:
        return look(self.http, path) if body is None else ask(self.http, path, body)

    def ended(self, job_id: str) -> Reply:
        """Waits for the result of a job and returns the response."""
        return self.ask(f"/api/v1/jobs/{job_id}/result?wait_s=60")


@pytest.fixture(scope="module", params=[*UP])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, loaded: LoadedProgram
) -> Iterator[Site]:
    """Each topology in memory, on a free port."""
    with loaded_fleet_in(tmp_path_factory.mktemp(request.param), loaded) as fleet:
        yield Site(fleet, request.param)


def test_jobs_are_submitted_found_and_canceled(site: Site) -> None:
    """Jobs are submitted singly and in batches, found, canceled and retried over HTTP."""
    made = site.ask("/api/v1/jobs", {"type": "echo", "payload": {"n": 1}, "labels": {"of": "one"}})
    assert (made.status, made.headers["location"]) == (202, f"/api/v1/jobs/{made.json['id']}")
    result = site.ended(made.json["id"]).json
    assert (result["status"], result["output"]) == ("DONE", {"n": 1})
    jobs = [{"type": "echo", "payload": n, "request_id": f"{site.topology}-{n}"} for n in range(5)]
    many, again = [site.ask("/api/v1/jobs", {"jobs": jobs}).json["jobs"] for _ in range(2)]
    assert [job["id"] for job in many] == [job["id"] for job in again]
    assert [site.ended(job["id"]).json["output"] for job in many] == [0, 1, 2, 3, 4]
    later = site.ask("/api/v1/jobs", {"type": "echo", "delay_s": 3600}).json["id"]
    assert site.ask(f"/api/v1/jobs/{later}/why").json["reason"]
    assert site.ask(f"/api/v1/jobs/{later}/cancel", {"reason": "no longer wanted"}).json["status"] == "CANCELED"
    listed = site.ask("/api/v1/jobs?status=CANCELED").json["jobs"]
    assert [job["id"] for job in listed] == [later]
    assert site.ask("/api/v1/jobs?label=of:one").json["jobs"][0]["id"] == made.json["id"]
    retried = site.ask(f"/api/v1/jobs/{later}/retry", {}).json["id"]
    assert site.ask(f"/api/v1/jobs/{retried}").json["retry_of"] == later
    assert site.ask(JOB).status == 404


def test_short_forms_are_there(site: Site) -> None:
    """The short paths /api/jobs, /job and /jobs submit and find jobs."""
    job_id = site.ask("/api/jobs", {"type": "once", "payload": "short", "priority": "high"}).json["job_id"]
    site.ended(job_id)
    assert site.ask(f"/job?job_id={job_id}").json["status"] == "DONE"
    assert job_id in site.ask("/jobs?status=completed").text


def test_paths_of_missing_capabilities_answer_501(site: Site) -> None:
    """A topology lists each missing capability once, and answers its paths with 501 and the same text."""
    told = site.ask("/api/v1/capabilities").json
    missing = MISSING[site.topology]
    assert (told["backend"], set(told["missing"])) == (site.topology, set(missing))
    assert set(told["capabilities"]).isdisjoint(missing)
    for name, paths in missing.items():
        for path in paths:
            reply = site.ask(path)
            assert (reply.status, reply.reason) == (501, "CAPABILITY_MISSING"), path
            assert reply.json["detail"] == told["missing"][name]
    there = ("/api/v1/stats", "/api/v1/queues", "/api/v1/workers", "/api/v1/schedules")
    if site.topology == "monolith":
        assert [site.ask(path).status for path in there] == [200] * 4
        eventually(lambda: site.ask("/api/v1/stats").json["slots"] == 2, what="the slot of each node")


def test_probes_metrics_and_the_page(site: Site) -> None:
    """A topology serves probes, metrics, the OpenAPI document and the dashboard over HTTP."""
    assert [site.ask(path).text for path in ("/livez", "/readyz")] == ["alive\n", "ready\n"]
    site.ask("/api/v1/jobs", {"type": "echo", "queue": "counted"})
    lines = site.ask("/metrics").text.splitlines()
    assert 'holdfast_jobs_submitted_total{queue="counted",type="echo"} 1.0' in lines
    assert any(line.startswith('holdfast_gateway_calls_total{call="submit",code="OK"} ') for line in lines)
    assert any(line.startswith("holdfast_build_info{") and f'backend="{site.topology}"' in line for line in lines)
    assert any(line.startswith("process_cpu_seconds_total ") for line in lines)
    assert "/api/v1/capabilities" in site.ask("/openapi.json").json["paths"]
    assert "<title>Holdfast</title>" in site.ask("/").text


def test_killed_http_process_is_restarted_on_its_port(site: Site) -> None:
    """The supervisor restarts the killed HTTP process on its port, and jobs submitted before are still there."""
    role = {"microservices": "gateway", "monolith": "front"}[site.topology]
    job_id = site.ask("/api/v1/jobs", {"type": "echo", "payload": "before"}).json["id"]
    pids = [line["pid"] for line in site.program.lines("role_ready") if line["role"] == role]
    os.kill(pids[-1], signal.SIGKILL)
    eventually(lambda: [one["role"] for one in site.program.lines("role_ready")].count(role) > len(pids))
    assert site.ended(job_id).json["output"] == "before"


def test_http_process_reconnects_to_a_restarted_node(site: Site) -> None:
    """The HTTP process reconnects to a node or an owner that was killed and restarted."""
    role = {"microservices": "queue", "monolith": "node-0"}[site.topology]
    (pid,) = [line["pid"] for line in site.program.lines("role_ready") if line["role"] == role]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: [one["role"] for one in site.program.lines("role_ready")].count(role) == 2)
    made = [eventually(lambda: site.ask("/api/v1/jobs", {"type": "echo"}).json.get("id")) for _ in range(4)]
    assert [site.ended(job_id).json["status"] for job_id in made] == ["DONE"] * 4
    assert site.ask("/api/v1/jobs?status=DONE").status == 200


@pytest.mark.parametrize("topology", [*UP])
def test_tokens_of_the_directory_are_asked_for(
    loaded: LoadedProgram, fleet: Fleet, tmp_path: Path, topology: str
) -> None:
    """With a tokens.json a topology answers 401 without a token and 403 without the scope, and its jobs run."""
    tokens = {}
    for scope in ("submit", "read"):
        made = LoadedShell(loaded, tmp_path).run(
            "token", "create", "--name", scope, "--scopes", scope, "--data", "data"
        )
        tokens[scope] = made.stdout.strip()
    ours = Authority(tmp_path / "papers", "ours")
    certificate, key = ours.sign("server")
    program = fleet.start(*UP[topology], "--data", "data", "--tls-cert", certificate, "--tls-key", key)
    http = program.ready()["http"]
    submit = {"type": "echo", "payload": "guarded"}
    bare = ask(http, "/api/v1/jobs", submit, authority=ours.path)
    assert (bare.status, bare.reason) == (401, "TOKEN_MISSING")
    beyond = ask(http, "/api/v1/jobs", submit, token=tokens["read"], authority=ours.path)
    assert (beyond.status, beyond.reason) == (403, "SCOPE_MISSING")
    made_id = ask(http, "/api/v1/jobs", submit, token=tokens["submit"], authority=ours.path).json["id"]
    path = f"/api/v1/jobs/{made_id}/result?wait_s=60"
    assert ask(http, path, token=tokens["submit"], authority=ours.path).status == 403
    assert ask(http, path, token=tokens["read"], authority=ours.path).json["output"] == "guarded"
    assert ask(http, "/livez", authority=ours.path).status == 200
    assert program.stop() == 0
    assert not any(token in program.log for token in tokens.values())


def submitted(http: str) -> str:
    """Submits a job, retrying until a node accepts it, and returns its id."""
    job_id: str = eventually(lambda: ask(http, "/api/v1/jobs", {"type": "echo"}).json.get("id", ""))
    return job_id


def test_node_that_is_down_takes_its_own_jobs_along(fleet: Fleet, tmp_path: Path) -> None:
    """A front answers 503 with retry-after for jobs of a node that is down, and serves the jobs of the other node."""
    nodes = NodeSet(fleet, tmp_path, nodes=2, slots=1)
    nodes.start()
    front = fleet.start("front", "--connect", nodes.target)
    http = front.ready()["http"]
    made: tuple[list[str], list[str]] = ([], [])
    while min(map(len, made)) < 2:  # round-robin, but a stalled node is skipped
        job_id = submitted(http)
        made[owner_index(job_id, 2)].append(job_id)
    down, up = made
    for job_id in (*down, *up):
        assert look(http, f"/api/v1/jobs/{job_id}/result?wait_s=60").status == 200
    nodes.programs[0].kill()
    away = ask(http, f"/api/v1/jobs/{down[0]}")
    assert (away.status, away.headers["retry-after"]) == (503, "1")
    assert {look(http, f"/api/v1/jobs/{job_id}").json["status"] for job_id in up} == {"DONE"}
    assert owner_index(submitted(http), 2) == 1
    whole = ask(http, "/api/v1/stats")
    assert (whole.status, whole.reason) == (503, "NODES_MISSING")
    assert [ask(http, path).status for path in ("/livez", "/readyz")] == [200, 200]
    nodes.start_again(0)
    eventually(lambda: ask(http, f"/api/v1/jobs/{down[0]}").status == 200, what="the jobs of the restarted node")
    assert front.stop() == 0


def test_nodes_without_http_have_no_front(fleet: Fleet) -> None:
    """A monolith with --no-http starts one process per node and no front."""
    program = fleet.start(*UP["monolith"], "--no-http")
    assert "http" not in program.ready()
    assert len(program.children()) == 2


def test_sockets_of_nodes_in_memory_are_this_users_alone(fleet: Fleet) -> None:
    """Only the owning user can open the sockets between front and nodes, and they are removed at the end."""
    program = fleet.start(*UP["monolith"])
    program.ready()
    words = [Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in program.children()]
    (front,) = [line for line in words if "front" in line]
    sockets = [Path(front[place + 1]) for place, word in enumerate(front) if word == "--socket"]
    assert len({path.parent for path in sockets}) == 1
    folder = sockets[0].parent
    assert [stat.filemode(path.stat().st_mode) for path in (folder, *sockets)] == ["drwx------"] + ["srw-------"] * 2
    assert program.stop() == 0
    assert not folder.exists()
