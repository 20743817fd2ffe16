"""Workers over ZooKeeper that die or stall, with session timeouts longer than any test waits."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.e2e.app_jobs import is_gone
from tests.e2e.fleet import Fleet, Program, kill_all
from tests.e2e.wait_until import DEADLINE_S, eventually
from tests.zookeeper import Place

APP = """
import os
import time
from pathlib import Path

from holdfast import Holdfast, current

app = Holdfast({url!r})


@app.job(max_losses=5)
def gate(name: str, forks: bool = False) -> int:
    if forks and os.fork() == 0:
        time.sleep(600)
        os._exit(0)
    Path(f"{{name}}.{{os.getpid()}}").touch()
    while not Path(name).exists():
        time.sleep(0.01)
    return current().attempt


@app.job
def pid() -> int:
    return os.getpid()
"""
#: The servers limit it to two minutes, which is longer than any test waits.
SESSION_MS = 600_000
assert DEADLINE_S < 120


class Shop:
    """Workers of one app, and its client."""

    def __init__(self, fleet: Fleet, app: Holdfast, place: Place) -> None:
        self.fleet = fleet
        self.app = app
        self.place = place
        self.workers: dict[int, Program] = {}

    def open(self) -> Program:
        """Starts one more worker and waits until it is ready."""
        worker = self.fleet.start("worker", "-A", "shop:app", "--slots", "1")
        worker.ready()
        self.workers[worker.pid] = worker
        return worker

    def running(self, name: str, but: int = 0) -> Program:
        """Waits for a worker other than `but` that runs the job of this name, and returns it."""

        def pids() -> list[int]:
            found = {int(path.suffix[1:]) for path in self.fleet.folder.glob(f"{name}.*")}
            return list(found - {but})

        (pid,) = eventually(pids, what=f"a worker that runs {name}")
        return self.workers[pid]

    def let_go(self, name: str) -> None:
        """Lets the jobs of this name end."""
        (self.fleet.folder / name).touch()


@pytest.fixture
def shop(loaded_fleet: Fleet, zookeeper: Place) -> Iterator[Shop]:
    """An app in the ensemble, without workers."""
    url = f"zk://{zookeeper.hosts}{zookeeper.root}?lease_ms={SESSION_MS}"
    (loaded_fleet.folder / "shop.py").write_text(APP.format(url=url))
    with Holdfast(url) as app:
        yield Shop(loaded_fleet, app, zookeeper)


def guard_of(pid: int) -> int:
    """Returns the pid of a process's session guard, once the guard ignores signals."""
    (guard,) = eventually(lambda: list(filter(is_guard, children(pid))), what="a session guard")
    deaf = 1 << signal.SIGINT - 1 | 1 << signal.SIGTERM - 1 | 1 << signal.SIGHUP - 1
    eventually(lambda: ignored_by(guard) & deaf == deaf, what="a guard that ignores signals")
    return guard


def children(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]


def is_guard(pid: int) -> bool:
    return b"guard_program.py" in Path(f"/proc/{pid}/cmdline").read_bytes()


def ignored_by(pid: int) -> int:
    """Returns the kernel's mask of the signals that a process ignores."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:"))


def test_job_of_a_killed_worker_is_run_again_although_its_session_lasts(shop: Shop) -> None:
    """The guard of a killed worker closes the worker's session, and another worker runs the job as the next attempt."""
    shop.open()
    shop.open()
    job = shop.app.submit("gate", ["one"])
    doomed = shop.running("one")
    guard = guard_of(doomed.pid)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(guard, number)
    doomed.kill()
    assert shop.running("one", but=doomed.pid) is not doomed
    shop.let_go("one")
    assert job.result(timeout_s=DEADLINE_S) == 2
    eventually(lambda: is_gone(guard), what="the end of the guard")


def test_process_that_a_job_has_forked_does_not_hide_the_death_of_its_worker(shop: Shop) -> None:
    """The guard closes the session of a killed worker although a forked process holds its pipe and connection open."""
    shop.open()
    shop.open()
    job = shop.app.submit("gate", ["one", True])
    doomed = shop.running("one")
    guard = guard_of(doomed.pid)
    forked = [pid for pid in children(doomed.pid) if pid != guard]
    try:
        doomed.kill()
        heir = shop.running("one", but=doomed.pid)
        forked += [pid for pid in children(heir.pid) if not is_guard(pid)]
        shop.let_go("one")
        assert job.result(timeout_s=DEADLINE_S) == 2
    finally:
        kill_all(forked)


def test_worker_killed_with_the_steward_is_noticed(shop: Shop) -> None:
    """A killed gateway gives up the role of steward at once, so that a lost worker is noticed without delay."""
    gateway = shop.fleet.start("zookeeper", "gateway", "--ensemble", "".join(shop.place), "--port", "0", "--no-http")
    gateway.ready()
    shop.open()
    shop.open()
    job = shop.app.submit("gate", ["one"])
    doomed = shop.running("one")
    guards = [guard_of(gateway.pid), guard_of(doomed.pid)]
    gateway.kill()
    doomed.kill()
    shop.running("one", but=doomed.pid)
    shop.let_go("one")
    assert job.result(timeout_s=DEADLINE_S) == 2
    eventually(lambda: all(map(is_gone, guards)), what="the end of the guards")


def test_worker_that_only_stands_still_keeps_its_session(shop: Shop) -> None:
    """The guard of a stopped worker leaves its session open, and the worker's job continues."""
    shop.open()
    shop.open()
    job = shop.app.submit("gate", ["one"])
    stopped = shop.running("one")
    guard = guard_of(stopped.pid)
    stopped.signal(signal.SIGSTOP)
    try:
        other = shop.app.submit("pid").result(timeout_s=DEADLINE_S)
        assert other in shop.workers.keys() - {stopped.pid}
        assert not is_gone(guard)
    finally:
        stopped.signal(signal.SIGCONT)
    shop.let_go("one")
    assert job.result(timeout_s=DEADLINE_S) == 1


def test_worker_that_stops_in_order_leaves_no_guard(shop: Shop) -> None:
    """On SIGTERM a worker closes its session and ends its guard before it exits."""
    worker = shop.open()
    guard = guard_of(worker.pid)
    assert worker.stop() == 0
    assert is_gone(guard)
    assert worker.lines("session_guard_missing") == []


def test_client_has_no_guard_and_a_worker_beside_it_has_one(shop: Shop) -> None:
    """A client starts no session guard, and a worker starts one in whichever process it runs."""
    shop.app.submit("pid")
    assert not any(map(is_guard, children(os.getpid())))
    with shop.app.worker(slots=1):
        guard = guard_of(os.getpid())
        assert os.getsid(guard) == guard
    assert is_gone(guard)
