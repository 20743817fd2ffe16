"""kill -9 of the server, again and again, while clients wait for answers and workers work; KILLS says how often."""

import random
import signal
import threading
from pathlib import Path

import grpc
import pytest

from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.campaign import kills_each, seed
from tests.e2e.fleet import Fleet, Program, stable_port
from tests.e2e.history import checked
from tests.e2e.waiting import eventually, pause
from tests.e2e.wire import TERMINAL, Wire

SEED = seed(20_260_210)
KILLS = kills_each(20)
CLIENTS = 4
_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """How the program is loaded is no part of these tests."""
    return loaded_fleet


class Client:
    """Submits one keyed job after the other; an answer that never came is asked for again under its key."""

    def __init__(self, wire: Wire, name: str, chance: int) -> None:
        self._wire = wire
        self._name = name
        self._draw = random.Random(chance)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self.acknowledged: dict[str, str] = {}
        self.specs: dict[str, int] = {}
        #: The attempt whose answer is awaited, and those whose answers were lost.
        self.awaited = 0
        self.lost: set[int] = set()
        self._attempts = 0
        self.errors: list[BaseException] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns once the last submit was acknowledged."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                key = f"{self._name}-{len(self.specs)}"
                self.specs[key] = self._draw.choice((0, 0, 0, 5))
                self.acknowledged[key] = self.submit(key)
        except BaseException as error:
            self.errors.append(error)
            raise

    def submit(self, key: str) -> str:
        """The id under the key, however often it takes."""
        while True:
            self._attempts += 1
            self.awaited = self._attempts
            try:
                return self._wire.submit(key=key, ms=self.specs[key], timeout_s=5).job_id
            except grpc.RpcError as error:
                if error.code() not in _LOST:
                    raise
                self.lost.add(self.awaited)
            finally:
                self.awaited = 0
            pause()


class Siege:
    """A server on one port and directory, its workers, its clients, and the one who kills it."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._draw = random.Random(SEED)
        self._port = stable_port()
        self.kills = 0
        target = f"127.0.0.1:{self._port}"
        self._server = self._start()
        self.wire = fleet.wire(target)
        for number in range(2):
            fleet.worker(target, "--slots", "4", "--worker-id", f"w{number}", "--log-level", "error")
        self.clients = [Client(fleet.wire(target), f"c{n}", SEED + n) for n in range(CLIENTS)]

    def _start(self) -> Program:
        return self._fleet.server("--log-level", "warning", port=self._port)[0]

    def count(self) -> int:
        return sum(len(client.acknowledged) for client in self.clients)

    def kill_once(self) -> bool:
        """One round; valid if an answer that a client awaited at the kill was lost with the server."""
        wanted = self.count() + self._draw.randrange(1, 60)
        eventually(self.count, lambda count: count >= wanted, what="progress")
        pause(self._draw.uniform(0, 0.02))
        awaited = [(client, client.awaited) for client in self.clients if client.awaited]
        self._server.kill()
        self.kills += 1
        self._server = self._start()
        eventually(lambda: all(client.awaited != attempt for client, attempt in awaited), what="their end")
        return any(attempt in client.lost for client, attempt in awaited)

    def settle(self) -> None:
        """Lets every client have its last answer and every job its end."""
        for client in self.clients:
            client.stop()
            assert client.errors == []
        eventually(lambda: len(self.wire.page(public.QUEUED, public.RUNNING).jobs), lambda count: count == 0)

    def end(self) -> int:
        return self._server.stop()


@pytest.mark.slow
@pytest.mark.timeout(240 + 10 * KILLS)
def test_kills_lose_nothing_that_was_acknowledged(fleet: Fleet, tmp_path: Path) -> None:
    """After kills with answers in flight every acknowledged job is there, ended once, under its key."""
    siege = Siege(fleet)
    for client in siege.clients:
        client.start()
    try:
        valid = 0
        while valid < KILLS:
            valid += siege.kill_once()
    finally:
        siege.settle()
    acknowledged = {key: job_id for client in siege.clients for key, job_id in client.acknowledged.items()}
    assert len(set(acknowledged.values())) == len(acknowledged), "every key has a job of its own"
    again = {key: client.submit(key) for client in siege.clients for key in client.acknowledged}
    assert again == acknowledged
    assert siege.end() == 0
    model = checked(tmp_path / "data")
    assert model.unfinished == []
    assert {model.jobs[job_id].state for job_id in acknowledged.values()} <= TERMINAL
    assert model.keys == acknowledged, "nothing exists that nobody asked for"
    assert model.last_epoch == siege.kills + 1


def test_server_killed_while_it_starts_loses_nothing(fleet: Fleet) -> None:
    """A server killed at any instant of its recovery leaves a directory that the next one starts from."""
    server, wire = fleet.server()
    ids = [wire.new(key=str(number)) for number in range(20)]
    server.kill()
    draw = random.Random(SEED)
    for _ in range(KILLS // 2):
        starting = fleet.start("server", "--data", "data", "--port", "0")
        pause(draw.uniform(0, 0.15))
        starting.signal(signal.SIGKILL)
        starting.wait()
    _, wire = fleet.server()
    assert [wire.new(key=str(number)) for number in range(20)] == ids
    assert len(wire.all_jobs(public.QUEUED)) == 20
