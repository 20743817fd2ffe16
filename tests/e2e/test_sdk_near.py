"""Sync callers are answered on their own thread where somebody near answers, and by the link where nobody does."""

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast, Job, ResultTimeoutError, State
from holdfast.client.blocking_link import NearSocket
from holdfast.client.link import Near
from holdfast.errors import HoldfastError
from tests.e2e.fleet import Fleet, Program
from tests.e2e.waiting import eventually


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """Processes of a program that is loaded once: how it is loaded is no part of these tests."""
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
    """An app on the directory or on the server's address, that has found its short way."""
    url = str(data) if request.param == "directory" else f"holdfast://{served.ready()['grpc']}"
    with Holdfast(url) as app:
        app.submit("echo", {})
        eventually(lambda: near_of(app) is not None, what="the short way")
        yield app


def on_a_thread(call: Callable[[], object]) -> list[object]:
    """What the call returned or raised, on another thread."""
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
    """What was submitted over it is what the link finds."""
    job = app.submit("sought", {"a": 1})
    assert isinstance(near_of(app), NearSocket)
    assert list(app.find(type="sought")) == [job]
    assert job.status() is State.QUEUED


def why_not(job: Job[object]) -> str:
    """What is said of a job that has not ended in time."""
    with pytest.raises(ResultTimeoutError) as caught:
        job.result(timeout_s=0.05)
    return str(caught.value)


def test_result_is_waited_for_in_time(app: Holdfast, fleet: Fleet, served: Program) -> None:
    """A job that nobody runs is not waited for longer than was asked, and its result comes when somebody does."""
    job = app.submit("echo", {"a": 1})
    # Nobody waits long for the reason, either: a machine that stands still may have none to tell.
    eventually(lambda: why_not(job), lambda words: "no worker" in words, what="the reason")
    fleet.start("worker", "--connect", served.ready()["grpc"]).ready()
    assert job.result(timeout_s=60) == {"a": 1}


def test_each_thread_has_a_way_of_its_own(app: Holdfast) -> None:
    """Threads submit at the same time, and none gets another's answer."""
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
    """The server is stopped in the middle of a call and killed; the caller's own process takes over, with the job."""
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
    """A server in memory has no socket: its callers go over gRPC, whatever else runs on the machine."""
    memory = fleet.start("server", "--data", "memory://", "--port", "0")
    with Holdfast(f"holdfast://{memory.ready()['grpc']}") as app:
        job = app.submit("echo", {})
        app.stats()
        assert near_of(app) is None
        assert job.status() is State.QUEUED


def test_handler_of_a_signal_may_ask_while_its_thread_waits(app: Holdfast) -> None:
    """A call within a call of the same thread has a connection of its own; both are answered."""
    job = app.submit("echo", {"n": 1})
    near = near_of(app)
    assert isinstance(near, NearSocket)
    open_then: list[int] = []

    def on_alarm(*_: object) -> None:
        if "carrier" in near._own.__dict__:  # the thread has not begun to wait in it
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
        starting.join()  # it may still be at it when its first job is done
    finally:
        signal.signal(signal.SIGALRM, before)
    assert open_then == [2]
