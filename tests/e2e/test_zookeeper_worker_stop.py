"""Workers over ZooKeeper that are stopped while no server of the ensemble answers."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.topologies.zookeeper.private_ensemble import PrivateZooKeeper
from tests.e2e.app_jobs import is_gone
from tests.e2e.fleet import Fleet, Program, stable_port
from tests.e2e.test_zookeeper_worker_loss import guard_of
from tests.e2e.waiting import eventually
from tests.zookeeper import TICK_MS, fresh_root, require_zookeeper

APP = """
import time
from pathlib import Path

from holdfast import Holdfast

app = Holdfast({url!r})


@app.job
def gate(folder: str) -> None:
    Path(folder, "begun").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.01)
    Path(folder, "ended").touch()
"""
#: Longer than any test waits: a drain that only this ends would be seen.
LONG_MS = "600000"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PrivateZooKeeper]:
    """A server of the test's own, which it may stop."""
    require_zookeeper()
    server = PrivateZooKeeper(tmp_path / "zookeeper", 1, TICK_MS, is_synced=False)
    server.start()
    yield server
    server.stop()


def url_of(hosts: str) -> str:
    return f"zk://{hosts}{fresh_root('stop')}"


def start(fleet: Fleet, url: str, *options: str) -> Program:
    """A worker of the app, which keeps its jobs there."""
    (fleet.folder / "shop.py").write_text(APP.format(url=url))
    return fleet.start("worker", "-A", "shop:app", "--slots", "1", "--log-format", "json", *options)


def away(worker: Program, server: PrivateZooKeeper) -> None:
    """Stop the server, until the worker has noticed it."""
    server.stop()
    eventually(lambda: worker.lines("ensemble_away"), what="a worker that misses its ensemble")


def test_worker_that_has_never_reached_its_ensemble_ends_on_the_first_stop(loaded_fleet: Fleet) -> None:
    """Nothing was begun, so nothing is waited for."""
    worker = start(loaded_fleet, url_of(f"127.0.0.1:{stable_port()}"), "--drain-ms", LONG_MS)
    eventually(lambda: worker.lines("disconnected"), what="a worker that cannot connect")
    assert worker.stop() == 0


def test_idle_worker_whose_ensemble_went_away_ends_on_the_first_stop(
    loaded_fleet: Fleet, server: PrivateZooKeeper
) -> None:
    """Without a job in hand there is nothing to drain; the guard ends with the worker, and the log was brief."""
    worker = start(loaded_fleet, url_of(server.hosts), "--drain-ms", LONG_MS)
    worker.ready()
    guard = guard_of(worker.pid)
    away(worker, server)
    assert worker.stop() == 0
    assert is_gone(guard)
    assert len(worker.lines("ensemble_away")) < 3  # not one of each task that waits


def test_worker_whose_ensemble_went_away_finishes_its_job_and_ends_on_the_second_stop(
    loaded_fleet: Fleet, server: PrivateZooKeeper, tmp_path: Path
) -> None:
    """The first stop lets the job run to its end; its outcome cannot be written, and the second stop does not wait."""
    url = url_of(server.hosts)
    worker = start(loaded_fleet, url, "--drain-ms", LONG_MS)
    worker.ready()
    with Holdfast(url) as app:
        app.submit("gate", [str(tmp_path)])
        eventually((tmp_path / "begun").exists, what="a job that runs")
    away(worker, server)
    worker.signal(signal.SIGTERM)
    eventually(lambda: worker.lines("draining"), what="a worker that drains")
    (tmp_path / "go").touch()
    eventually((tmp_path / "ended").exists, what="the end of the job")
    assert worker.is_running()
    assert worker.stop() == 0


def test_third_stop_leaves_no_time(loaded_fleet: Fleet, server: PrivateZooKeeper, tmp_path: Path) -> None:
    """A job that goes on regardless of a long grace does not keep a worker that was told three times."""
    url = url_of(server.hosts)
    worker = start(loaded_fleet, url, "--drain-ms", LONG_MS, "--kill-grace-ms", LONG_MS)
    worker.ready()
    with Holdfast(url) as app:
        app.submit("gate", [str(tmp_path)])
        eventually((tmp_path / "begun").exists, what="a job that runs")
    away(worker, server)
    worker.signal(signal.SIGTERM)
    eventually(lambda: worker.lines("draining"), what="a worker that drains")
    worker.signal(signal.SIGINT)
    eventually(lambda: worker.lines("handing_back"), what="a worker that hands back")
    assert worker.stop() == 0
