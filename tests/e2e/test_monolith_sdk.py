"""Programs and commands with the addresses of all nodes work as with one server."""

import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast import Holdfast
from holdfast.core.lifecycle import CANCELED, DONE
from holdfast.core.owner import owner_index
from holdfast.errors import ExitCode, InvalidArgumentError, UnimplementedError
from tests.e2e.fleet import Fleet
from tests.e2e.nodes import NodeSet, wait_for_the_slow
from tests.e2e.preloaded_fleet import loaded_fleet_in
from tests.e2e.preloaded_prompt import LoadedProgram, LoadedShell
from tests.e2e.wait_until import eventually


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises the client deadlines, so that a stalled node is not skipped."""
    wait_for_the_slow(monkeypatch)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, loaded: LoadedProgram) -> Iterator[NodeSet]:
    """Three nodes without slots, for all tests of the module."""
    folder = tmp_path_factory.mktemp("nodes")
    with loaded_fleet_in(folder, loaded) as fleet:
        nodes = NodeSet(fleet, folder / "data", "--log-level", "error")
        nodes.start()
        yield nodes


@pytest.fixture
def app(nodes: NodeSet) -> Iterator[Holdfast]:
    """An app that connects to all nodes."""
    with Holdfast(f"holdfast://{nodes.target}") as app:
        yield app


def owners(jobs: list[str]) -> set[int]:
    """Returns the indexes of the nodes that own the jobs."""
    return {owner_index(job_id, 3) for job_id in jobs}


def test_sync_program_submits_works_and_waits(app: Holdfast) -> None:
    """One worker of this process runs the jobs of all nodes, and a sync program gets their results in order."""
    name = f"double-{uuid4().hex}"

    @app.job(name=name)
    def double(number: int) -> int:
        return 2 * number

    with app.worker(slots=4):
        jobs = double.submit_many([(number,) for number in range(60)])
        jobs += [double.submit(number) for number in range(60, 70)]
        assert owners([job.id for job in jobs]) == {0, 1, 2}
        assert [job.result(30) for job in jobs] == [2 * number for number in range(70)]
    found = list(app.find(type=name))
    assert sorted(job.id for job in found) == sorted(job.id for job in jobs)
    assert jobs[0].status() == DONE
    history = [entry.what for entry in jobs[0].history()]
    assert (history[0], history[-1]) == ("submitted", "finished")
    assert jobs[5].retry().id != jobs[5].id


async def test_async_program_submits_works_and_waits(app: Holdfast) -> None:
    """One worker of this process runs the jobs of all nodes, and an async program gets their results in order."""

    @app.job(name=f"triple-{uuid4().hex}")
    async def triple(number: int) -> int:
        return 3 * number

    with app.worker(slots=4):
        jobs = await triple.asubmit_many([(number,) for number in range(30)])
        jobs.append(await triple.asubmit(30))
        assert [await job.aresult(30) for job in jobs] == [3 * number for number in range(31)]


def test_keys_hold_over_all_nodes(nodes: NodeSet, app: Holdfast) -> None:
    """A request id and a unique key find the same job from any program."""
    by_request, by_key = uuid4().hex, uuid4().hex
    first = app.submit("once", request_id=by_request)
    only = app.submit("once", unique_key=by_key)
    with Holdfast(f"holdfast://{nodes.target}") as other:
        assert other.submit("once", request_id=by_request).id == first.id
        assert other.submit("once", [1], unique_key=by_key).id == only.id
    assert first.cancel() == CANCELED


def test_slots_are_shared_by_all_nodes(app: Holdfast) -> None:
    """A worker with two slots runs two jobs at a time, not two of each node."""
    lock, running, most = threading.Lock(), 0, 0
    gate = threading.Barrier(2, timeout=30)

    @app.job(name=f"busy-{uuid4().hex}")
    def busy() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        gate.wait()
        with lock:
            running -= 1

    jobs = busy.submit_many([()] * 24)
    with app.worker(slots=2):
        for job in jobs:
            job.result(30)
    assert most == 2
    assert {job.view().attempts for job in jobs} <= set(range(1, 25))


def test_administration_concerns_all_nodes(app: Holdfast) -> None:
    """Pause, purge and queue counts apply to all nodes."""
    queue = f"queue-{uuid4().hex}"
    jobs = [app.submit("brew", queue=queue) for _ in range(6)]
    app.pause(queue, "tea time")
    (view,) = [view for view in app.queues() if view.name == queue]
    assert (view.ready, view.mode.name, view.reason) == (6, "PAUSED", "tea time")
    assert "paused" in jobs[0].why()
    assert app.stats().states["QUEUED"] >= 6
    assert app.purge(queue) == 6
    app.resume(queue)
    assert {job.status() for job in jobs} == {CANCELED}


def test_worker_and_commands_take_the_list(nodes: NodeSet, fleet: Fleet, tmp_path: Path, loaded: LoadedProgram) -> None:
    """Workers and commands accept the addresses of all nodes for --connect, and `events` is refused."""
    shell = LoadedShell(loaded, tmp_path, nodes.target)
    worker = fleet.worker(nodes.target, "--slots", "2", "--worker-id", "of-all")
    ids = [shell.run("job", "submit", "echo", str(number), "--wait", "--json").stdout for number in range(2)]
    assert len(ids) == 2
    listed = shell.run("job", "list", "--type", "echo", "--json")
    assert listed.returncode == 0
    assert listed.stdout.count('"DONE"') >= 2
    # On a slow machine all nodes may have considered the worker lost for a moment.
    eventually(
        lambda: shell.run("worker", "list").stdout, lambda told: "of-all" in told, what="a worker that is listed"
    )
    assert shell.run("worker", "drain", "of-all").returncode == 0
    assert worker.wait() == 0
    events = shell.run("events")
    assert (events.returncode, "several nodes have no common event stream" in events.stderr) == (ExitCode.REFUSED, True)


@pytest.mark.parametrize(
    "url",
    [
        "holdfast://a:1,",
        "holdfast://a:1,b",
        "holdfast://a:1,a:1",
        "holdfast://,a:1",
        "a:1,b:2",
        "holdfast://" + ",".join(f"a:{port}" for port in range(1, 66)),
    ],
)
def test_list_that_cannot_be_is_refused(url: str) -> None:
    """An app refuses a URL with an empty, repeated or invalid address, or with too many."""
    with pytest.raises(InvalidArgumentError):
        Holdfast(url)


async def test_feed_of_a_program_is_unimplemented(app: Holdfast) -> None:
    """The feed over several nodes raises UnimplementedError."""
    with pytest.raises(UnimplementedError):
        await app.connection.call(lambda ports: anext(ports.feed.feed(None)))
