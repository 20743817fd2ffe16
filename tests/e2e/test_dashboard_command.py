"""`holdfast dashboard`: page, HTTP API and metrics for a directory, a server, nodes and an ensemble."""

from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.errors import ExitCode
from tests.e2e.fleet import Fleet, Program
from tests.e2e.http_requests import Reply, ask
from tests.e2e.nodes import NodeSet
from tests.e2e.preloaded_prompt import LoadedProgram, LoadedShell
from tests.e2e.wait_until import eventually
from tests.zookeeper import Place

#: A non-loopback address without a listener.
ELSEWHERE = "203.0.113.9"
APP = """
from holdfast import Holdfast

app = Holdfast("data")

@app.job
def double(number: int) -> int:
    return 2 * number
"""


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


@pytest.fixture
def data(fleet: Fleet) -> Path:
    """A directory with one job and an app beside it; no process has the directory open."""
    (fleet.folder / "shop.py").write_text(APP)
    with Holdfast(fleet.folder / "data") as app:
        app.submit("double", {"number": 1})
    return fleet.folder / "data"


def shown(fleet: Fleet, place: str, *arguments: str, **environment: str) -> tuple[Program, str]:
    """Starts a dashboard, waits until it is ready and returns its address."""
    program = fleet.start("dashboard", place, "--port", "0", *arguments, **environment)
    return program, program.ready()["http"]


def look(address: str, path: str) -> Reply:
    """Returns the response; retries while it is 503."""
    return eventually(lambda: ask(address, path), lambda reply: reply.status != 503)


def states(address: str) -> dict[str, int]:
    """Returns the number of jobs per state."""
    counts: dict[str, int] = look(address, "/api/v1/stats").json["states"]
    return counts


def test_directory_has_page_api_and_metrics(fleet: Fleet, data: Path) -> None:
    """The dashboard serves a directory that no process has open, and releases it when it ends."""
    program, address = shown(fleet, "data")
    assert "<title>Holdfast</title>" in ask(address, "/").text
    assert [job["type"] for job in ask(address, "/api/v1/jobs").json["jobs"]] == ["double"]
    assert 'holdfast_queue_jobs{queue="default",state="ready"} 1.0' in ask(address, "/metrics").text.splitlines()
    told = ask(address, "/api/v1/capabilities").json
    assert (told["backend"], [*told["missing"]]) == ("ledger", ["totals"])
    with Holdfast(data) as app:  # another client of the directory: it connects to the dashboard
        app.submit("double", {"number": 2})
        assert states(address)["QUEUED"] == 2
    assert program.stop() == 0
    with Holdfast(data) as app:
        assert app.stats().states["QUEUED"] == 2


def test_directory_passes_to_the_dashboard_and_on(fleet: Fleet, data: Path) -> None:
    """The dashboard shows a directory that a worker serves, takes over when that ends, and hands over at its end."""
    first = fleet.start("worker", "-A", "shop:app")
    first.ready()
    program, address = shown(fleet, "data")
    job_id = ask(address, "/api/v1/jobs", {"type": "double", "payload": {"number": 21}}).json["id"]
    assert ask(address, f"/api/v1/jobs/{job_id}/result?wait_s=60").json["output"] == 42
    history = look(address, f"/api/v1/jobs/{job_id}/history").json["entries"]
    assert history[-1]["what"] == "finished"
    assert first.stop() == 0
    assert states(address)["DONE"] == 2
    second = fleet.start("worker", "-A", "shop:app", "--worker-id", "second")
    second.ready()
    workers = eventually(lambda: look(address, "/api/v1/workers").json["workers"])
    assert [worker["worker_id"] for worker in workers] == ["second"]
    assert program.stop() == 0
    with Holdfast(data) as app:
        assert app.submit("double", {"number": 4}).result(timeout_s=60) == 8
    assert second.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "environment"), [(("--retain-jobs", "0"), {}), ((), {"HOLDFAST_RETAIN_JOBS": "0"})]
)
def test_directory_keeps_finished_jobs_by_the_settings_of_the_dashboard(
    fleet: Fleet, data: Path, arguments: tuple[str, ...], environment: dict[str, str]
) -> None:
    """A dashboard that serves a directory evicts finished jobs by its own retention settings."""
    _, address = shown(fleet, str(data), *arguments, **environment)
    (job,) = ask(address, "/api/v1/jobs").json["jobs"]
    assert ask(address, f"/api/v1/jobs/{job['id']}/cancel", {}).status == 200
    gone = eventually(lambda: ask(address, f"/api/v1/jobs/{job['id']}"), lambda reply: reply.status != 200)
    assert gone.status == 404


def test_tokens_of_the_directory_are_asked_for(fleet: Fleet, data: Path, loaded: LoadedProgram) -> None:
    """A dashboard of a directory with a tokens.json requires a token and checks its scope."""
    shell = LoadedShell(loaded, fleet.folder)
    made = shell.run("token", "create", "--name", "eyes", "--scopes", "read", "--data", "data").stdout.strip()
    _, address = shown(fleet, str(data))
    assert ask(address, "/api/v1/jobs").reason == "TOKEN_MISSING"
    assert ask(address, "/api/v1/jobs", token=made).status == 200
    assert ask(address, "/api/v1/queues/default/pause", {}, token=made).reason == "SCOPE_MISSING"


def test_server_is_shown_with_the_token_of_the_dashboard(fleet: Fleet, loaded: LoadedProgram) -> None:
    """The dashboard uses its own token for callers on loopback, and refuses to do so on another address."""
    shell = LoadedShell(loaded, fleet.folder)
    token = shell.run("token", "create", "--name", "eyes", "--scopes", "read", "--data", "kept").stdout.strip()
    target = fleet.start("server", "--data", "kept", "--port", "0", "--no-http").ready()["grpc"]
    _, address = shown(fleet, f"holdfast://{target}", HOLDFAST_TOKEN=token)
    assert ask(address, "/api/v1/jobs").json["jobs"] == []
    assert ask(address, "/api/v1/jobs", {"type": "echo"}).reason == "SCOPE_MISSING"
    lent = shell.run(
        "dashboard", f"holdfast://{target}", "--port", "0", "--host", ELSEWHERE, "--insecure", HOLDFAST_TOKEN=token
    )
    assert (lent.returncode, "expected --tokens FILE" in lent.stderr) == (ExitCode.REFUSED, True)
    assert token not in lent.stderr


def test_nodes_are_shown_together(fleet: Fleet, tmp_path: Path) -> None:
    """The dashboard shows the jobs of all nodes together, and lists the capabilities that the monolith lacks."""
    nodes = NodeSet(fleet, tmp_path, nodes=2, slots=1)
    nodes.start()
    _, address = shown(fleet, nodes.target)
    made = [ask(address, "/api/v1/jobs", {"type": "echo", "payload": n}).json["id"] for n in range(4)]
    assert [look(address, f"/api/v1/jobs/{one}/result?wait_s=60").json["output"] for one in made] == [0, 1, 2, 3]
    told = ask(address, "/api/v1/capabilities").json
    assert (told["backend"], sorted(told["missing"])) == ("monolith", ["feed", "order", "totals"])


def test_ensemble_is_shown_without_a_server(fleet: Fleet, zookeeper: Place) -> None:
    """The dashboard lists the jobs of a zk:// URL, and answers CAPABILITY_MISSING for stats."""
    url = f"zk://{zookeeper.hosts}{zookeeper.root}"
    _, address = shown(fleet, url)
    with Holdfast(url) as app:
        job = app.submit("anything")
    assert [one["id"] for one in look(address, "/api/v1/jobs").json["jobs"]] == [job.id]
    assert ask(address, "/api/v1/stats").reason == "CAPABILITY_MISSING"


def test_port_that_is_taken_is_said(fleet: Fleet, data: Path, loaded: LoadedProgram) -> None:
    """A dashboard whose port is taken exits with an error that names --port."""
    _, address = shown(fleet, str(data))
    port = address.rpartition(":")[2]
    refused = LoadedShell(loaded, fleet.folder).run("dashboard", "data", "--port", port)
    assert (refused.returncode, "choose another port with --port" in refused.stderr) == (ExitCode.UNREACHABLE, True)


def test_place_without_jobs_is_refused(loaded: LoadedProgram, tmp_path: Path) -> None:
    """The dashboard refuses a directory without jobs and leaves it empty, and refuses a non-loopback address."""
    (tmp_path / "empty").mkdir()
    shell = LoadedShell(loaded, tmp_path)
    empty = shell.run("dashboard", "empty", "--port", "0")
    assert (empty.returncode, "the directory contains no jobs" in empty.stderr) == (ExitCode.UNREACHABLE, True)
    assert [*(tmp_path / "empty").iterdir()] == []
    with Holdfast(tmp_path / "data") as app:
        app.submit("anything")
    beyond = shell.run("dashboard", "data", "--port", "0", "--host", ELSEWHERE)
    assert (beyond.returncode, "loopback" in beyond.stderr) == (ExitCode.USAGE, True)
