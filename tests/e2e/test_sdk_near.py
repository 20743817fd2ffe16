"""Sync calls run on the caller's thread over a local socket if there is one, and over the link otherwise."""

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast, Job, ResultTimeoutError, State
from holdfast.client.link import Near
from holdfast.client.near_socket import NearSocket
from holdfast.errors import HoldfastError
from tests.e2e.fleet import Fleet, Program
from tests.e2e.wait_until import eventually


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


@pytest.fixture
def data(fleet: Fleet) -> Path:
    return fleet.folder / "jobs"


def near_of(app: Holdfast) -> Near | None:
    return app._connection.near()


@pytest.fixture
def served(fleet: Fleet, data: Path) -> Program:
    """A server of the directory."""
    server = fleet.start("server", "--data", str(data), "--port", "0")
    server.ready()
    return server


@pytest.fixture(params=["directory", "server"])
def app(request: pytest.FixtureRequest, served: Program, data: Path) -> Iterator[Holdfast]:
    """An app on the directory or the server's address that has found the local socket."""
    url = str(data) if request.param == "directory" else f"holdfast://{served.ready()['grpc']}"
    with Holdfast(url) as app:
        app.submit("echo", {})
        eventually(lambda: near_of(app) is not None, what="the local socket")
        yield app


def on_a_thread(call: Callable[[], object]) -> list[object]:
    """Runs the call on another thread and returns its result or error."""
    results: list[object] = []

    def run() -> None:
        try:
            results.append(call())
        except HoldfastError as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results


def test_short_way_leads_to_the_same_jobs(app: Holdfast) -> None:
    """The link finds a job that was submitted over the local socket."""
    job = app.submit("sought", {"a": 1})
    assert isinstance(near_of(app), NearSocket)
    assert list(app.find(type="sought")) == [job]
    assert job.status() is State.QUEUED


def why_not(job: Job[object]) -> str:
    """Returns the message of a result timeout."""
    with pytest.raises(ResultTimeoutError) as caught:
        job.result(timeout_s=0.05)
    return str(caught.value)


def test_result_is_waited_for_in_time(app: Holdfast, fleet: Fleet, served: Program) -> None:
    """A wait for a result ends at its timeout while no worker is connected, and returns the result later."""
    job = app.submit("echo", {"a": 1})
    # The wait for the reason is short as well: a stalled machine may not report it.
    eventually(lambda: why_not(job), lambda words: "no worker" in words, what="the reason")
    fleet.start("worker", "--connect", served.ready()["grpc"]).ready()
    assert job.result(timeout_s=60) == {"a": 1}


def test_each_thread_has_a_way_of_its_own(app: Holdfast) -> None:
    """Threads that submit concurrently each get their own replies."""
    answers: list[list[object]] = []

    def submit_some() -> list[str]:
        return [app.submit("echo", {"n": number}).id for number in range(50)]

    threads = [threading.Thread(target=lambda: answers.append(on_a_thread(submit_some))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [job_id for (some,) in answers if isinstance(some, list) for job_id in some]
    assert len(ids) == len(set(ids)) == 200


def test_answer_that_got_lost_is_asked_for_again(served: Program, data: Path) -> None:
    """A submit whose server is killed before the reply is repeated once this process serves the directory."""
    with Holdfast(str(data)) as app:
        app.submit("echo", {})
        served.signal(signal.SIGSTOP)
        waiting = threading.Thread(target=app.submit, args=("later", {}))
        waiting.start()
        served.kill()
        waiting.join()
        assert len(list(app.find(type="later"))) == 1
        assert not isinstance(near_of(app), NearSocket)


@pytest.mark.usefixtures("served")
def test_socket_of_another_server_is_not_taken(fleet: Fleet) -> None:
    """An app on an in-memory server, which has no socket, uses gRPC although another server has one."""
    memory = fleet.start("server", "--data", "memory://", "--port", "0")
    with Holdfast(f"holdfast://{memory.ready()['grpc']}") as app:
        job = app.submit("echo", {})
        app.stats()
        assert near_of(app) is None
        assert job.status() is State.QUEUED


def test_handler_of_a_signal_may_ask_while_its_thread_waits(app: Holdfast) -> None:
    """A signal handler that submits while its thread waits uses a second connection, and both calls are answered."""
    job = app.submit("echo", {"n": 1})
    near = near_of(app)
    assert isinstance(near, NearSocket)
    open_then: list[int] = []

    def on_alarm(*_: object) -> None:
        if "carrier" in near._own.__dict__:  # the thread does not wait on it yet
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            return
        app.submit("echo", {"n": 2})
        open_then.append(len(near._all))
        starting.start()

    worker = app.worker()
    starting = threading.Thread(target=worker.start)
    before = signal.signal(signal.SIGALRM, on_alarm)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        assert job.result() == {"n": 1}
        starting.join()  # the start may still be in progress when the first job is done
    finally:
        signal.signal(signal.SIGALRM, before)
    assert open_then == [2]
