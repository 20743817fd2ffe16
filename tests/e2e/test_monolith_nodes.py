"""Nodes that are down, nodes that come back, and directories of other nodes."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.client.reconnect_policy import patiently
from holdfast.client.routed_jobs import RoutedJobs
from holdfast.core.lifecycle import DONE, QUEUED
from holdfast.core.model import Extra, QueueMode, Template
from holdfast.core.owner import owner_index
from holdfast.errors import Code, ExitCode, HoldfastError, UnavailableError
from holdfast.ports import JobDraft, JobQuery
from tests.e2e.fleet import Fleet
from tests.e2e.nodes import NodeSet, wait_for_the_slow
from tests.e2e.preloaded_fleet import loaded_fleet_in
from tests.e2e.preloaded_prompt import LoadedProgram, LoadedShell
from tests.e2e.shell import Shell
from tests.e2e.wait_until import eventually

ECHO = [Template("echo")]
BREW = [Template("brew")]


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
    """Three nodes without slots; a test that kills one restarts it."""
    folder = tmp_path_factory.mktemp("nodes")
    with loaded_fleet_in(folder, loaded) as fleet:
        nodes = NodeSet(fleet, folder / "data", "--log-level", "error")
        nodes.start()
        yield nodes


@pytest.fixture
async def jobs(nodes: NodeSet) -> AsyncIterator[RoutedJobs]:
    """A client that routes calls to the owner."""
    async with RoutedJobs(nodes.addresses) as jobs:
        yield jobs


@pytest.fixture
def node_1_away(nodes: NodeSet) -> Iterator[None]:
    """Kills node 1, and restarts it after the test."""
    nodes.programs[1].kill()
    yield
    nodes.start_again(1)


def key_of(index: int) -> str:
    """Returns a key that this node of three owns."""
    return next(key for key in map(str, range(1_000)) if owner_index(key, 3) == index)


async def test_node_that_is_away_makes_its_own_jobs_unavailable_and_nothing_else(
    nodes: NodeSet, jobs: RoutedJobs
) -> None:
    """While a node is down only its own jobs are unavailable, and after a restart it has all of them."""
    ids = (await jobs.submit(BREW, [JobDraft(payload=str(n).encode()) for n in range(30)])).job_ids
    nodes.programs[1].kill()
    for number, job_id in enumerate(ids):
        if owner_index(job_id, 3) == 1:
            continue
        assert await jobs.payload(job_id) == str(number).encode()
    lost = [job_id for job_id in ids if owner_index(job_id, 3) == 1]
    assert len(lost) == 10
    for call in (jobs.get(lost[0]), jobs.cancel(lost[1], ""), jobs.result(lost[2])):
        with pytest.raises(UnavailableError) as caught:
            await call
        assert nodes.addresses[1] in caught.value.message
    nodes.start_again(1)
    assert (await patiently(lambda: jobs.get(lost[0]))).state == QUEUED
    assert [(await jobs.get(job_id)).state for job_id in ids] == [QUEUED] * 30


@pytest.mark.usefixtures("node_1_away")
async def test_submits_without_a_key_skip_a_node_that_is_down(jobs: RoutedJobs) -> None:
    """The client skips a node that is down for submits without a key, singly and in batches."""
    ids = [(await jobs.submit(BREW, [JobDraft()])).job_ids[0] for _ in range(9)]
    ids += (await jobs.submit(BREW, [JobDraft()] * 9)).job_ids
    assert {owner_index(job_id, 3) for job_id in ids} == {0, 2}
    assert len(set(ids)) == 18


@pytest.mark.usefixtures("node_1_away")
async def test_submit_with_a_request_id_of_a_node_that_is_away_is_unavailable(nodes: NodeSet, jobs: RoutedJobs) -> None:
    """A submit with a request id of a node that is down fails, and the rest of its batch is accepted."""
    drafts = [JobDraft(extra=Extra(request_id=key_of(index))) for index in (0, 1, 2)]
    with pytest.raises(UnavailableError):
        await jobs.submit(BREW, drafts[1:2])
    answer = await jobs.submit(BREW, drafts)
    assert [bool(job_id) for job_id in answer.job_ids] == [True, False, True]
    assert answer.refusals[1].code == Code.UNAVAILABLE
    assert nodes.addresses[1] in answer.refusals[1].message


@pytest.mark.usefixtures("node_1_away")
async def test_calls_over_all_nodes_name_the_missing_node(nodes: NodeSet, jobs: RoutedJobs) -> None:
    """While a node is down, calls over all nodes fail with NODES_MISSING and name it."""
    calls = (
        lambda: jobs.find(JobQuery(), "", 10),
        lambda: jobs.page([], 0, 10, newest_first=True),
        jobs.queues,
        jobs.workers,
        jobs.stats,
        lambda: jobs.set_queue_mode("q", QueueMode.OPEN, ""),
    )
    for call in calls:
        with pytest.raises(UnavailableError) as caught:
            await call()
        assert (caught.value.reason, caught.value.details["nodes"]) == ("NODES_MISSING", nodes.addresses[1])


@pytest.mark.usefixtures("node_1_away")
def test_job_list_says_which_node_is_missing(nodes: NodeSet, tmp_path: Path, loaded: LoadedProgram) -> None:
    """`job list` over all nodes fails and names the node that is down, and one node alone still lists its jobs."""
    listed = LoadedShell(loaded, tmp_path, nodes.target).run("job", "list")
    assert (listed.returncode, listed.stdout) == (ExitCode.UNREACHABLE, "")
    assert nodes.addresses[1] in listed.stderr
    assert LoadedShell(loaded, tmp_path, nodes.addresses[0]).run("job", "list").returncode == 0


async def test_stopped_node_is_unknown_rather_than_passed_over(nodes: NodeSet, jobs: RoutedJobs) -> None:
    """The client never sends a submit that a stopped node may have accepted to another, and reports it as unknown."""
    await jobs.submit(BREW, [JobDraft()] * 3)  # opens the connection to every node
    nodes.programs[1].signal(signal.SIGSTOP)
    submits = [asyncio.create_task(jobs.submit(BREW, [JobDraft()])) for _ in range(3)]
    for answered in asyncio.as_completed(submits):
        await answered
        if sum(task.done() for task in submits) == 2:
            break
    nodes.programs[1].kill()
    answers = await asyncio.gather(*submits, return_exceptions=True)
    nodes.start_again(1)
    (error,) = [answer for answer in answers if isinstance(answer, HoldfastError)]
    assert error.code in {Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE}
    assert "is unknown" in error.message


def test_worker_goes_on_with_the_nodes_that_are_there(
    nodes: NodeSet, fleet: Fleet, tmp_path: Path, loaded: LoadedProgram
) -> None:
    """A worker runs the jobs of the remaining nodes while one is down, and that node's jobs after its return."""
    worker = fleet.worker(nodes.target, "--slots", "2")
    shell = LoadedShell(loaded, tmp_path, nodes.target)
    nodes.programs[1].kill()
    eventually(lambda: worker.lines("node_away"), what="the loss of a node")
    for _ in range(3):
        done = shell.run("job", "submit", "echo", '"on"', "--wait")
        assert done.stdout == '"on"', done.stderr
    nodes.start_again(1)
    eventually(lambda: worker.lines("node_back"), what="the return of a node")
    key = key_of(1)
    assert shell.run("job", "submit", "echo", '"back"', "--request-id", key, "--wait").stdout == '"back"'
    assert worker.stop() == 0


def refused(shell: Shell, *arguments: str) -> str:
    """Runs a command that must be refused and returns its error."""
    done = shell.run(*arguments)
    assert done.returncode == ExitCode.REFUSED, done
    return done.stderr


def node(index: int, nodes: int, data: str = "data") -> tuple[str, ...]:
    """Returns the command of one node."""
    return ("node", "--index", str(index), "--nodes", str(nodes), "--port", "0", "--data", data)


def test_directory_of_another_node_is_refused(fleet: Fleet, tmp_path: Path, loaded: LoadedProgram) -> None:
    """A node refuses the directory of another node and names both identities, and the right node starts on it."""
    program = fleet.start(*node(0, 3))
    assert (program.ready()["index"], program.ready()["nodes"]) == (0, 3)
    program.kill()
    before = (tmp_path / "data" / "NODE").read_bytes()
    shell = LoadedShell(loaded, tmp_path)
    for index, count in ((1, 3), (0, 2), (0, 1)):
        words = refused(shell, *node(index, count))
        assert "belongs to node 0 of 3" in words
        assert f"was started as node {index} of {count}" in words
    assert (tmp_path / "data" / "NODE").read_bytes() == before
    fleet.start(*node(0, 3)).ready()


def test_directory_without_nodes_is_refused_to_one_of_several(
    fleet: Fleet, tmp_path: Path, loaded: LoadedProgram
) -> None:
    """One of several nodes refuses a directory of a server without nodes, and a single node accepts it."""
    server, wire = fleet.server()
    job_id = wire.new()
    server.stop()
    words = refused(LoadedShell(loaded, tmp_path), *node(0, 2))
    assert "accepted without nodes" in words
    assert not (tmp_path / "data" / "NODE").exists()
    only = fleet.start(*node(0, 1))
    assert fleet.wire(only.ready()["grpc"]).status(job_id).job_id == job_id


def test_directory_of_one_of_several_nodes_is_refused_to_servers_and_commands(
    fleet: Fleet, tmp_path: Path, loaded: LoadedProgram
) -> None:
    """Servers and commands refuse the directory of a node of several."""
    program = fleet.start(*node(1, 2))
    program.ready()
    program.stop()
    shell = LoadedShell(loaded, tmp_path)
    for command in (("server", "--data", "data", "--port", "0"), ("job", "list", "--connect", "data")):
        assert "belongs to node 1 of 2" in refused(shell, *command)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--index", "3", "--nodes", "3"), "--index must be from 0 to 2"),
        (("--index", "-1", "--nodes", "3"), "--index must be from 0 to 2"),
        (("--index", "0", "--nodes", "0"), "nodes must be"),
        (("--index", "0", "--nodes", "65"), "nodes must be"),
    ],
)
def test_node_that_cannot_be_is_refused(
    tmp_path: Path, loaded: LoadedProgram, arguments: tuple[str, ...], words: str
) -> None:
    """A node with an impossible index or number of nodes exits with one line that names the allowed values."""
    done = LoadedShell(loaded, tmp_path).run("node", *arguments)
    assert (done.returncode, len(done.stderr.splitlines())) == (ExitCode.USAGE, 1)
    assert words in done.stderr


def test_unreadable_identity_is_refused(tmp_path: Path, loaded: LoadedProgram) -> None:
    """A node refuses a directory whose NODE file is invalid."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "NODE").write_text("{}")
    assert "cannot be read" in refused(LoadedShell(loaded, tmp_path), *node(0, 2))


async def test_job_whose_node_died_running_it_is_run_again_at_once(fleet: Fleet, tmp_path: Path) -> None:
    """A restarted node grants the job that its dead slot was running again, as a loss."""
    nodes = NodeSet(fleet, tmp_path / "data", nodes=2, slots=1)
    nodes.start()
    async with RoutedJobs(nodes.addresses) as jobs:
        wires = nodes.connect()
        job_id = wires[0].new(ms=600_000)
        eventually(lambda: wires[0].status(job_id).status, lambda status: status == 2, what="the start of the job")
        nodes.programs[0].kill()
        nodes.start_again(0)
        eventually(lambda: fleet.programs[-1].lines("transition"), what="the loss of the job")
        view = await patiently(lambda: jobs.get(job_id))
        assert view.losses == 1
        await jobs.cancel(job_id, "")
        done = (await jobs.submit(ECHO, [JobDraft(payload=b"1")] * 4)).job_ids
        assert [(await jobs.settled(one))[0].state for one in done] == [DONE] * 4


@pytest.mark.parametrize(
    "extra", [Extra(request_id=key_of(0)), Extra(request_id=key_of(2)), Extra(unique_key=key_of(0))]
)
async def test_list_in_another_order_is_refused(nodes: NodeSet, extra: Extra) -> None:
    """A client whose list has the nodes in another order gets NODE_MISPLACED, and no node accepts the job."""
    before = [len(wire.all_jobs()) for wire in nodes.connect()]
    async with RoutedJobs(nodes.addresses[::-1]) as jobs:
        with pytest.raises(HoldfastError, match=r"but is node . of . in the list") as refused:
            await jobs.submit(BREW, [JobDraft(extra=extra)])
        assert refused.value.reason == "NODE_MISPLACED"
    assert [len(wire.all_jobs()) for wire in nodes.connect()] == before
