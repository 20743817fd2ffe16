"""`holdfast up --topology zookeeper`: one command starts ensemble, gateway and worker; apps that need no server."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from holdfast import Holdfast, limits
from holdfast.errors import ExitCode, FailedPreconditionError, NotFoundError, UnavailableError, UnimplementedError
from holdfast.topologies.zookeeper.backend import connection
from holdfast.topologies.zookeeper.backend.records import NodeRetention
from holdfast.topologies.zookeeper.backend.retention import read_retention
from holdfast.topologies.zookeeper.ensemble_url import ensemble_of
from tests.e2e.app_jobs import is_gone
from tests.e2e.fleet import Fleet, Program, fleet_in, kill_all, stable_port
from tests.e2e.grpc_client import Wire
from tests.e2e.http_requests import Reply, ask
from tests.e2e.preloaded_prompt import LoadedProgram, LoadedShell
from tests.e2e.wait_until import eventually
from tests.zookeeper import Place, require_zookeeper

UP = ("up", "--topology", "zookeeper", "--port", "0", "--lease-ms", "2000")
APP = """
from holdfast import Holdfast

app = Holdfast({url!r})

@app.job
def double(number: int) -> int:
    return 2 * number
"""
#: An address without a listener.
NOWHERE = f"127.0.0.1:{stable_port()}"
#: Roles by a word of their command lines.
_ROLES = {"QuorumPeerMain": "server", "gateway": "gateway", "worker": "worker"}


class Up:
    """One topology that is ready."""

    def __init__(self, fleet: Fleet, *arguments: str) -> None:
        self.folder = fleet.folder
        self.program: Program = fleet.start(*UP, *arguments)
        self.ready = self.program.ready()
        self.wire: Wire = fleet.wire(self.ready["grpc"])

    def pids(self) -> dict[str, list[int]]:
        """Returns the current pids of each role; `server` is the role of the ensemble's servers."""
        found: dict[str, list[int]] = {}
        for pid in self.program.children():
            words: list[str] = []
            with contextlib.suppress(OSError):  # the process has ended since
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            roles = [role for word, role in _ROLES.items() if any(one.endswith(word) for one in words)]
            if roles:  # otherwise the process has just started or ended
                found.setdefault(roles[0], []).append(pid)
        return found


def answered(up: Up, path: str, body: object = None) -> Reply:
    """Returns the gateway's HTTP response; retries while it is 503."""
    return eventually(lambda: ask(up.ready["http"], path, body), lambda reply: reply.status != 503)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One topology for all tests; the last one kills its processes and stops it."""
    require_zookeeper()
    with fleet_in(tmp_path_factory.mktemp("up")) as fleet:
        yield Up(fleet, "--data", "kept")


@pytest.fixture(scope="module", autouse=True)
def around_nothing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A start with an unreachable ensemble, which keeps trying while the other tests run."""
    with fleet_in(tmp_path_factory.mktemp("nothing")) as fleet:
        yield fleet.start(*UP, "--ensemble", NOWHERE)


@pytest.fixture
def url(zookeeper: Place) -> str:
    """The URL of an app and its workers, with a root of its own."""
    return f"zk://{zookeeper.hosts}{zookeeper.root}?lease_ms=2000"


def test_ensemble_and_roles_and_one_line(shared: Up) -> None:
    """The ready line has the gRPC and HTTP addresses of the gateway, and the ensemble with its credentials file."""
    assert {role: len(pids) for role, pids in shared.pids().items()} == {"server": 3, "gateway": 1, "worker": 1}
    assert shared.ready.keys() == {"event", "grpc", "http", "ensemble", "pid"}
    assert shared.ready["ensemble"].count(",") == 2
    place = ensemble_of(shared.ready["ensemble"])
    assert place.root == "/holdfast"
    assert (Path(place.auth_file).name, Path(place.auth_file).stat().st_mode & 0o777) == ("auth", 0o600)


def test_stranger_reaches_no_node_of_the_private_ensemble(shared: Up) -> None:
    """A session without the credentials can neither read nor write below the root, nor create nodes beside it."""
    shared.wire.done("before")
    place = ensemble_of(shared.ready["ensemble"])
    stranger = KazooClient(place.hosts, timeout=10)
    stranger.start(timeout=30)
    try:
        with pytest.raises(NoAuthError):
            stranger.get_children(place.root)
        with pytest.raises(NoAuthError):
            stranger.get(f"{place.root}/layout")
        with pytest.raises(NoAuthError):
            stranger.set(place.root, b"")
        for node in (f"{place.root}/mine", "/mine"):
            with pytest.raises(NoAuthError):
                stranger.create(node)
    finally:
        stranger.stop()
        stranger.close()
    secret = place.credentials().partition(":")[2]
    for pid in shared.program.children():
        assert secret not in Path(f"/proc/{pid}/cmdline").read_text()
    assert secret not in shared.program.log


def test_app_without_the_credentials_is_refused(shared: Up) -> None:
    """An app without the credentials gets an error at its first call that names the auth_file option."""
    place = ensemble_of(shared.ready["ensemble"])
    with Holdfast(f"zk://{place.hosts}{place.root}") as app, pytest.raises(Exception, match="auth_file=FILE"):
        app.submit("echo", ["stranger"])
    assert shared.program.output.count("\n") == 1


def test_job_runs_whichever_way_it_comes(shared: Up) -> None:
    """The same worker runs jobs from the frozen contract, from HTTP and from an app in the ensemble."""
    job_id = shared.wire.done("frozen")
    made = answered(shared, "/api/v1/jobs", {"type": "echo", "payload": {"n": 1}}).json
    assert answered(shared, f"/api/v1/jobs/{made['id']}/result?wait_s=60").json["output"] == {"n": 1}
    with Holdfast(f"zk://{shared.ready['ensemble']}") as app:
        assert app.submit("echo", {"n": 2}).result(timeout_s=60) == {"n": 2}
        assert job_id in {job.id for job in app.find()}


def test_processes_log_the_transitions_that_they_make(shared: Up) -> None:
    """The gateway logs the submit, and the worker the bid and the end, as transitions."""
    job_id = shared.wire.done("logged")
    lines = eventually(
        lambda: [line for line in shared.program.lines("transition") if line["job_id"] == job_id],
        lambda found: len(found) == 3,
    )
    told = {line["new_state"]: line for line in lines}  # each process logs after its reply, so the order may vary
    assert {state: line["service"] for state, line in told.items()} == {
        "QUEUED": "holdfast",
        "RUNNING": "worker",
        "DONE": "worker",
    }
    assert {(line["old_state"], state, line["attempt"], bool(line["worker_id"])) for state, line in told.items()} == {
        ("", "QUEUED", 0, False),
        ("QUEUED", "RUNNING", 1, True),
        ("RUNNING", "DONE", 1, True),
    }
    assert {(line["ts_ms"] > 0, line["priority"]) for line in lines} == {(True, 5)}


def test_gateway_answers_capability_missing_for_features_an_ensemble_lacks(shared: Up) -> None:
    """The gateway serves the dashboard, and answers CAPABILITY_MISSING for features that an ensemble lacks."""
    assert answered(shared, "/").status == 200
    for path in ("/api/v1/stats", "/api/v1/queues", "/api/v1/schedules", "/api/v1/events"):
        reply = answered(shared, path)
        assert (reply.status, reply.reason) == (501, "CAPABILITY_MISSING")


def test_commands_ask_the_ensemble_itself(shared: Up, tmp_path: Path, loaded: LoadedProgram) -> None:
    """Commands with `--connect zk://…` submit, wait, list, explain and cancel without a Holdfast server."""
    shell = LoadedShell(loaded, tmp_path, f"zk://{shared.ready['ensemble']}")
    done = shell.run("job", "submit", "echo", '"hi"', "--wait", "--label", "of=commands")
    assert (done.returncode, done.stdout) == (0, '"hi"')
    later = shell.run("job", "submit", "echo", "--delay", "3600").stdout.strip()
    assert "DELAYED" in shell.run("job", "why", later, "--json").stdout
    assert shell.run("job", "cancel", later).returncode == 0
    assert later in shell.run("job", "list", "--state", "CANCELED").stdout
    refused = shell.run("queue", "list")
    assert (refused.returncode, "the zookeeper backend has no administration" in refused.stderr) == (4, True)


def test_ensemble_that_is_named_is_used(fleet: Fleet, zookeeper: Place) -> None:
    """`holdfast up --ensemble` starts no server, stores its jobs at the given root and its retention settings too."""
    up = Up(fleet, "--ensemble", f"{zookeeper.hosts}{zookeeper.root}", "--retain-ms", "3600000")
    assert up.ready["ensemble"] == f"{zookeeper.hosts}{zookeeper.root}"
    assert up.pids().keys() == {"gateway", "worker"}
    up.wire.done("named")
    assert asyncio.run(retention_in(zookeeper)) == NodeRetention(3_600_000, limits.RETAIN_FAILED_MS_DEFAULT)
    assert up.program.stop() == 0


async def retention_in(place: Place) -> NodeRetention:
    """Returns the retention settings stored in the ensemble."""
    client = await connection.connect(place.hosts, place.root, session_ms=10_000)
    try:
        return await read_retention(client)
    finally:
        await client.close()


def test_app_works_without_any_server(url: str) -> None:
    """An app submits, waits, forgets, cancels and lists in the ensemble, and its own worker bids there."""
    app = Holdfast(url)

    @app.job
    def double(number: int) -> int:
        return 2 * number

    with app, app.worker(slots=2):
        answered = double.submit(21)
        assert answered.result(timeout_s=60) == 42
        answered.forget()
        answered.forget()
        with pytest.raises(NotFoundError):
            answered.status()
        assert [job.result(timeout_s=60) for job in double.submit_many([(n,) for n in range(20)])] == [
            2 * n for n in range(20)
        ]
        waiting = double.with_options(delay_s=3_600).submit(1)
        with pytest.raises(FailedPreconditionError, match="it has not ended"):
            waiting.forget()
        assert waiting.cancel().name == "CANCELED"
        assert waiting.id in {job.id for job in app.find(state="CANCELED")}

        async def elsewhere() -> int:
            return await (await double.asubmit(4)).aresult(timeout_s=60)

        assert asyncio.run(elsewhere()) == 8
        with pytest.raises(UnimplementedError, match="the zookeeper backend has no administration"):
            app.queues()


def test_worker_of_an_app_is_started_by_either_command(fleet: Fleet, zookeeper: Place, url: str) -> None:
    """`holdfast worker -A` finds the ensemble by its app, and `holdfast zookeeper worker` by its option."""
    (fleet.folder / "shop.py").write_text(APP.format(url=url))
    with Holdfast(url) as app:
        first = fleet.start("worker", "-A", "shop:app")
        assert app.submit("double", [1]).result(timeout_s=60) == 2
        assert first.stop() == 0
        place = f"{zookeeper.hosts}{zookeeper.root}"
        second = fleet.start("zookeeper", "worker", "--ensemble", place, "-A", "shop:app", "-Q", "special", "-c", "2")
        second.ready()
        elsewhere, here = app.submit("double", [2]), app.submit("double", [3], queue="special")
        assert here.result(timeout_s=60) == 6
        assert elsewhere.status().name == "QUEUED"
        assert second.stop() == 0


def test_first_call_to_an_unreachable_ensemble_names_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call of an app to an unreachable ensemble fails and names its address."""
    monkeypatch.setattr(connection, "_CALL_S", 0.5)
    with Holdfast(f"zk://{NOWHERE}") as app, pytest.raises(UnavailableError, match=f"no ZooKeeper .* at {NOWHERE}"):
        app.submit("echo", [1])


def test_killed_processes_come_back_and_all_end_in_order(shared: Up, fleet: Fleet) -> None:
    """Killed gateways, workers and ensemble servers are replaced, and no process survives a stop or a kill of `up`."""
    up = shared
    for role in ("gateway", "worker", "server"):
        old = up.pids()[role]
        os.kill(old[0], signal.SIGKILL)
        eventually(lambda role=role, old=old: set(up.pids().get(role, [])) - set(old))  # type: ignore[misc]
        job_id = up.wire.done(role)
    pids = [pid for role in up.pids().values() for pid in role]
    assert up.program.stop() == 0
    assert all(is_gone(pid) for pid in pids)
    assert len(up.program.lines("ensemble_server_died")) == 1
    assert [line["role"] for line in up.program.lines("role_died")] == ["gateway", "worker"]
    again = Up(fleet, "--data", str(up.folder / "kept"))
    assert again.ready["ensemble"] == up.ready["ensemble"]
    assert again.wire.done(role) == job_id
    left = [pid for role in again.pids().values() for pid in role]
    again.program.kill()
    try:
        eventually(lambda: all(is_gone(pid) for pid in left), what="the end of a killed program's children")
    finally:
        kill_all(left)


def test_ensemble_that_is_not_there_is_named(around_nothing: Program, fleet: Fleet) -> None:
    """`holdfast up` with an unreachable ensemble names it and exits with UNREACHABLE, and refuses a repeated server."""
    assert around_nothing.wait() == ExitCode.UNREACHABLE
    assert f"no ZooKeeper server answers at {NOWHERE}" in around_nothing.log
    wrong = fleet.start(*UP, "--ensemble", "a:1,a:1")
    assert wrong.wait() == ExitCode.USAGE
    assert "each server must be named once" in wrong.log
