"""`holdfast up --topology zookeeper`: an ensemble, a gateway and a worker by one command; apps that need no server."""

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
from tests.e2e.http_asking import Reply, ask
from tests.e2e.loaded import LoadedProgram, LoadedShell
from tests.e2e.waiting import eventually
from tests.e2e.wire import Wire
from tests.zookeeper import Place, require_zookeeper

UP = ("up", "--topology", "zookeeper", "--port", "0", "--lease-ms", "2000")
APP = """
from holdfast import Holdfast

app = Holdfast({url!r})

@app.job
def double(number: int) -> int:
    return 2 * number
"""
#: Where nobody listens.
NOWHERE = f"127.0.0.1:{stable_port()}"
#: By a word of their commands.
_ROLES = {"QuorumPeerMain": "server", "gateway": "gateway", "worker": "worker"}


class Up:
    """One topology that is ready."""

    def __init__(self, fleet: Fleet, *arguments: str) -> None:
        self.folder = fleet.folder
        self.program: Program = fleet.start(*UP, *arguments)
        self.ready = self.program.ready()
        self.wire: Wire = fleet.wire(self.ready["grpc"])

    def pids(self) -> dict[str, list[int]]:
        """The processes of each role, as they are now: `server` is one of the ensemble."""
        found: dict[str, list[int]] = {}
        for pid in self.program.children():
            words: list[str] = []
            with contextlib.suppress(OSError):  # it has ended since
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            roles = [role for word, role in _ROLES.items() if any(one.endswith(word) for one in words)]
            if roles:  # else it has just been started, or has ended
                found.setdefault(roles[0], []).append(pid)
        return found


def answered(up: Up, path: str, body: object = None) -> Reply:
    """What the gateway says over HTTP, once it does not say that the ensemble should be asked again later."""
    return eventually(lambda: ask(up.ready["http"], path, body), lambda reply: reply.status != 503)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One for all; the last test with it kills whatever it has, and ends it."""
    require_zookeeper()
    with fleet_in(tmp_path_factory.mktemp("up")) as fleet:
        yield Up(fleet, "--data", "kept")


@pytest.fixture(scope="module", autouse=True)
def around_nothing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Started around an ensemble that is not there; it asks for a while, during which the other tests run."""
    with fleet_in(tmp_path_factory.mktemp("nothing")) as fleet:
        yield fleet.start(*UP, "--ensemble", NOWHERE)


@pytest.fixture
def url(zookeeper: Place) -> str:
    """Where an app and its workers meet, with nobody else there."""
    return f"zk://{zookeeper.hosts}{zookeeper.root}?lease_ms=2000"


def test_ensemble_and_roles_and_one_line(shared: Up) -> None:
    """The line names the gateway by both protocols, and the ensemble that anybody may use directly."""
    assert {role: len(pids) for role, pids in shared.pids().items()} == {"server": 3, "gateway": 1, "worker": 1}
    assert shared.ready.keys() == {"event", "grpc", "http", "ensemble", "pid"}
    assert shared.ready["ensemble"].count(",") == 2
    place = ensemble_of(shared.ready["ensemble"])
    assert place.root == "/holdfast"
    assert (Path(place.auth_file).name, Path(place.auth_file).stat().st_mode & 0o777) == ("auth", 0o600)


def test_stranger_reaches_no_node_of_the_private_ensemble(shared: Up) -> None:
    """A session without the credentials can neither read nor change what is below the root, nor make nodes beside."""
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
    """It is told at its first question how the file is named."""
    place = ensemble_of(shared.ready["ensemble"])
    with Holdfast(f"zk://{place.hosts}{place.root}") as app, pytest.raises(Exception, match="auth_file=FILE"):
        app.submit("echo", ["stranger"])
    assert shared.program.output.count("\n") == 1


def test_job_runs_whichever_way_it_comes(shared: Up) -> None:
    """Over the frozen contract, over HTTP, and into the ensemble itself: the same worker runs it."""
    job_id = shared.wire.done("frozen")
    made = answered(shared, "/api/v1/jobs", {"type": "echo", "payload": {"n": 1}}).json
    assert answered(shared, f"/api/v1/jobs/{made['id']}/result?wait_s=60").json["output"] == {"n": 1}
    with Holdfast(f"zk://{shared.ready['ensemble']}") as app:
        assert app.submit("echo", {"n": 2}).result(timeout_s=60) == {"n": 2}
        assert job_id in {job.id for job in app.find()}


def test_processes_log_the_transitions_that_they_make(shared: Up) -> None:
    """The gateway logs the submit, the worker the bid and the end, each with the fields of a transition."""
    job_id = shared.wire.done("logged")
    lines = eventually(
        lambda: [line for line in shared.program.lines("transition") if line["job_id"] == job_id],
        lambda found: len(found) == 3,
    )
    told = {line["new_state"]: line for line in lines}  # each process logs after the answer, so lines may cross
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


def test_what_is_missing_is_said_over_http(shared: Up) -> None:
    """The dashboard is there, and what an ensemble does not keep is refused by its name."""
    assert answered(shared, "/").status == 200
    for path in ("/api/v1/stats", "/api/v1/queues", "/api/v1/schedules", "/api/v1/events"):
        reply = answered(shared, path)
        assert (reply.status, reply.reason) == (501, "CAPABILITY_MISSING")


def test_commands_ask_the_ensemble_itself(shared: Up, tmp_path: Path, loaded: LoadedProgram) -> None:
    """`--connect zk://…` submits, waits, lists, explains and cancels without a server of ours."""
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
    """No server is started, the jobs are where they were asked to be, and kept for as long as `up` was told."""
    up = Up(fleet, "--ensemble", f"{zookeeper.hosts}{zookeeper.root}", "--retain-ms", "3600000")
    assert up.ready["ensemble"] == f"{zookeeper.hosts}{zookeeper.root}"
    assert up.pids().keys() == {"gateway", "worker"}
    up.wire.done("named")
    assert asyncio.run(retention_in(zookeeper)) == NodeRetention(3_600_000, limits.RETAIN_FAILED_MS_DEFAULT)
    assert up.program.stop() == 0


async def retention_in(place: Place) -> NodeRetention:
    """What stewards are told there."""
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
    """`holdfast worker -A` finds the ensemble by its app, `holdfast zookeeper worker` by its option."""
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


def test_app_is_told_that_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first question to an ensemble that is not there fails, and names it."""
    monkeypatch.setattr(connection, "_CALL_S", 0.5)
    with Holdfast(f"zk://{NOWHERE}") as app, pytest.raises(UnavailableError, match=f"no ZooKeeper .* at {NOWHERE}"):
        app.submit("echo", [1])


def test_killed_processes_come_back_and_all_end_in_order(shared: Up, fleet: Fleet) -> None:
    """A gateway, a worker and a server of the ensemble are replaced; TERM ends the worker first and leaves nothing."""
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
    """Whoever starts everything around nothing is told, with the exit code of what cannot be reached."""
    assert around_nothing.wait() == ExitCode.UNREACHABLE
    assert f"no ZooKeeper server answers at {NOWHERE}" in around_nothing.log
    wrong = fleet.start(*UP, "--ensemble", "a:1,a:1")
    assert wrong.wait() == ExitCode.USAGE
    assert "each server is named once" in wrong.log
