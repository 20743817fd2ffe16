"""Sync calls run on the caller's own thread, over a connection of that thread: a socket, or TCP."""

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest

from holdfast import Holdfast, Job, ResultTimeoutError, State
from holdfast.client.blocking_client import BlockingClient
from holdfast.client.link import BlockingCalls
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


def near_of(app: Holdfast) -> BlockingCalls | None:
    return app._connection.blocking_calls()


@pytest.fixture
def served(fleet: Fleet, data: Path) -> Program:
    """A server of the directory."""
    server = fleet.start("server", "--data", str(data), "--port", "0")
    server.ready()
    return server


@pytest.fixture(params=["directory", "grpc", "http"])
def app(request: pytest.FixtureRequest, served: Program, data: Path) -> Iterator[Holdfast]:
    """An app on the directory, whose socket it uses, or on an address of the server, whose TCP port it uses."""
    url = str(data) if request.param == "directory" else f"holdfast://{served.ready()[request.param]}"
    with Holdfast(url) as app:
        app.submit("echo", {})
        eventually(lambda: near_of(app) is not None, what="the connection of the thread")
        yield app


def connections_of(app: Holdfast) -> int:
    """Returns the number of connections that threads of the app have open."""
    blocking_calls = near_of(app)
    assert isinstance(blocking_calls, BlockingClient)
    return len([carrier for carrier in blocking_calls._all if carrier.is_open])


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
    """The link finds a job that was submitted on the thread's own connection."""
    job = app.submit("sought", {"a": 1})
    assert connections_of(app) == 1
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


def test_each_thread_has_one_connection_and_closes_it(app: Holdfast) -> None:
    """A thread opens one connection for all its calls, which is closed when the thread ends."""
    app.submit("echo", {})
    count = 4
    met, counted = threading.Barrier(count + 1), threading.Event()

    def submit_some() -> None:
        for number in range(3):
            app.submit("echo", {"n": number})
        met.wait()
        counted.wait()

    threads = [threading.Thread(target=submit_some) for _ in range(count)]
    for thread in threads:
        thread.start()
    met.wait()
    open_then = connections_of(app)
    counted.set()
    for thread in threads:
        thread.join()
    assert open_then == 1 + count
    assert connections_of(app) == 1


def test_closed_app_has_no_connections(app: Holdfast) -> None:
    """An app that is closed has closed the connections of all threads."""
    app.submit("echo", {})
    blocking_calls = near_of(app)
    assert isinstance(blocking_calls, BlockingClient)
    open_then = list(blocking_calls._all)
    assert open_then
    app.close()
    assert not [carrier for carrier in open_then if carrier.is_open]


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
        assert not isinstance(near_of(app), BlockingClient)


class LosingRelay:
    """Forwards TCP connections to a server; on request it loses the next answer, and the connection with it."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._is_losing = threading.Event()
        self.lost = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def lose_next(self) -> None:
        self._is_losing.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                blocking_calls, far = self._listener.accept()[0], socket.create_connection(self._target)
                for source, sink in ((blocking_calls, far), (far, blocking_calls)):
                    threading.Thread(target=self._forward, args=(source, sink, source is far), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:  # noqa: FBT001 - of a thread
        with contextlib.suppress(OSError), source, sink:
            while data := source.recv(65_536):
                if is_answer and self._is_losing.is_set():
                    self._is_losing.clear()
                    self.lost += 1
                    break
                sink.sendall(data)
            for line in (source, sink):
                line.shutdown(socket.SHUT_RDWR)


def test_answer_that_got_lost_over_tcp_is_asked_for_again(served: Program) -> None:
    """A submit whose answer is lost with its connection is repeated over another one, and creates one job."""
    with LosingRelay(served.ready()["http"]) as relay, Holdfast(f"holdfast://{relay.address}") as app:
        app.stats()
        app.submit("echo", {})
        assert connections_of(app) == 1
        relay.lose_next()
        job = app.submit("later", {})
        assert relay.lost == 1
        assert list(app.find(type="later")) == [job]
        app.submit("echo", {})
        assert connections_of(app) == 1


@pytest.mark.usefixtures("served")
def test_socket_of_another_server_is_not_taken(fleet: Fleet, data: Path) -> None:
    """An app on an in-memory server, which has no socket, uses its port although another server has a socket."""
    memory = fleet.start("server", "--data", "memory://", "--port", "0")
    with Holdfast(f"holdfast://{memory.ready()['grpc']}") as app, Holdfast(str(data)) as other:
        app.stats()
        job = app.submit("echo", {})
        assert connections_of(app) == 1
        assert job.status() is State.QUEUED
        assert list(app.find()) == [job]
        assert list(other.find()) == []


def test_handler_of_a_signal_may_ask_while_its_thread_waits(app: Holdfast) -> None:
    """A signal handler that submits while its thread waits uses a second connection, and both calls are answered."""
    job = app.submit("echo", {"n": 1})
    blocking_calls = near_of(app)
    assert isinstance(blocking_calls, BlockingClient)
    open_then: list[int] = []

    def on_alarm(*_: object) -> None:
        if blocking_calls._own.idle:  # the thread does not wait on it yet
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            return
        app.submit("echo", {"n": 2})
        open_then.append(connections_of(app))
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
