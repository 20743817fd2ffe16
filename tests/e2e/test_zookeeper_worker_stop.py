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
from tests.e2e.wait_until import eventually
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
#: Longer than any test waits, so that a drain until this limit fails the test.
LONG_MS = "600000"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PrivateZooKeeper]:
    """A ZooKeeper server of the test's own."""
    require_zookeeper()
    server = PrivateZooKeeper(tmp_path / "zookeeper", 1, TICK_MS, is_synced=False)
    server.start()
    yield server
    server.stop()


def url_of(hosts: str) -> str:
    return f"zk://{hosts}{fresh_root('stop')}"


def start(fleet: Fleet, url: str, *options: str) -> Program:
    """Starts a worker of the app at this URL."""
    (fleet.folder / "shop.py").write_text(APP.format(url=url))
    return fleet.start("worker", "-A", "shop:app", "--slots", "1", "--log-format", "json", *options)


def away(worker: Program, server: PrivateZooKeeper) -> None:
    """Stops the server and waits until the worker has noticed it."""
    server.stop()
    eventually(lambda: worker.lines("ensemble_away"), what="a worker that has lost its ensemble")


def test_worker_that_has_never_reached_its_ensemble_ends_on_the_first_stop(loaded_fleet: Fleet) -> None:
    """A worker that has never reached its ensemble exits on the first SIGTERM."""
    worker = start(loaded_fleet, url_of(f"127.0.0.1:{stable_port()}"), "--drain-ms", LONG_MS)
    eventually(lambda: worker.lines("disconnected"), what="a worker that cannot connect")
    assert worker.stop() == 0


def test_idle_worker_whose_ensemble_went_away_ends_on_the_first_stop(
    loaded_fleet: Fleet, server: PrivateZooKeeper
) -> None:
    """An idle worker whose ensemble is down exits with its guard on the first SIGTERM, and logs the outage briefly."""
    worker = start(loaded_fleet, url_of(server.hosts), "--drain-ms", LONG_MS)
    worker.ready()
    guard = guard_of(worker.pid)
    away(worker, server)
    assert worker.stop() == 0
    assert is_gone(guard)
    assert len(worker.lines("ensemble_away")) < 3  # not one line per waiting task


def test_worker_whose_ensemble_went_away_finishes_its_job_and_ends_on_the_second_stop(
    loaded_fleet: Fleet, server: PrivateZooKeeper, tmp_path: Path
) -> None:
    """A worker without its ensemble finishes its job after one SIGTERM, and exits without a report on the second."""
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
    """A worker exits on the third signal, although its job and the kill grace last longer."""
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
