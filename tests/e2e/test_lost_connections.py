"""Healthy workers whose connection is reset or whose server restarts: each job is started once."""

import signal
from collections import Counter
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.core.events import Extended
from holdfast.proto import taskqueue_public_pb2 as public
from holdfast_lab.torture.faults.clock_file import FileClock
from tests.e2e.fleet import Fleet, Program, stable_port
from tests.e2e.history import checked, events_in, grants, of_kind, revocations
from tests.e2e.nodes import NodeSet
from tests.e2e.resets import ResettingProxy, resetting_proxy
from tests.e2e.wait_until import DEADLINE_S, eventually, pause

TEN_MINUTES = "600000"
GATED = """
import time
from pathlib import Path

from holdfast import Holdfast, current

app = Holdfast("holdfast://{target}")


@app.job
def gate(folder: str) -> int:
    Path(folder, "begun").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.01)
    Path(folder, "ended").touch()
    return current().attempt
"""


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


def attached(worker: Program, times: int) -> None:
    """Waits until the worker has started this many sessions."""
    eventually(lambda: len(worker.lines("attached")) >= times, what=f"session {times}")


def reset_and_wait(proxy: ResettingProxy) -> None:
    """Resets the connections and waits for a new one."""
    before = proxy.accepted
    assert proxy.reset() >= 1
    eventually(lambda: proxy.accepted > before, what="a new connection")


def test_resets_of_a_healthy_workers_connection_cost_nothing(fleet: Fleet, tmp_path: Path) -> None:
    """A worker whose connection is reset four times during a job finishes it in its first attempt, without a loss."""
    # Longer than the default, because a busy machine may delay the reconnect by more than a second.
    server, wire = fleet.server("--reconnect-grace-ms", "20000")
    with resetting_proxy(server.ready()["http"]) as proxy:
        worker = fleet.worker(proxy.address, "--slots", "1", "--log-format", "json")
        job_id = wire.running(ms=3_000)
        for number in range(4):
            assert proxy.reset() >= 1
            attached(worker, number + 2)
        assert wire.wait_for(job_id).status == public.DONE
        worker.stop()
    server.stop()
    found = events_in(tmp_path / "data")
    assert grants(found) == Counter({job_id: 1})
    assert revocations(found) == []


def test_outcome_of_a_disconnected_worker_is_sent_after_it_is_back(fleet: Fleet, tmp_path: Path) -> None:
    """A worker reports a job that ended without a connection in its next session, and the job is not run again."""
    port = stable_port()
    server, wire = fleet.server(port=port)
    (fleet.folder / "gated.py").write_text(GATED.format(target=wire.target))
    fleet.start("worker", "-A", "gated:app").ready()
    with Holdfast(f"holdfast://{wire.target}") as app:
        job = app.submit("gate", [str(tmp_path)])
        eventually((tmp_path / "begun").exists, what="a job that runs")
        server.kill()
        (tmp_path / "go").touch()
        eventually((tmp_path / "ended").exists, what="a job that has ended")
        server, _ = fleet.server(port=port)
        assert job.result(timeout_s=DEADLINE_S) == 1
    server.stop()
    assert grants(events_in(tmp_path / "data")) == Counter({job.id: 1})


def test_resets_between_a_worker_and_its_nodes_cost_nothing(fleet: Fleet, tmp_path: Path) -> None:
    """A worker of two nodes whose connections are reset finishes its jobs in their first attempts, without a loss."""
    nodes = NodeSet(fleet, tmp_path, nodes=2)
    nodes.start()
    first, second = nodes.connect()
    ports = [program.ready()["wire"] for program in nodes.programs]
    with resetting_proxy(ports[0]) as one, resetting_proxy(ports[1]) as other:
        fleet.worker(f"{one.address},{other.address}", "--slots", "2")
        jobs = [(wire, wire.running(ms=3_000)) for wire in (first, second)]
        for _ in range(4):
            for proxy in (one, other):
                reset_and_wait(proxy)
        for wire, job_id in jobs:
            assert wire.wait_for(job_id).status == public.DONE
    for index, (_, job_id) in enumerate(jobs):
        nodes.programs[index].stop()
        found = events_in(nodes.data(index))
        assert (grants(found)[job_id], revocations(found)) == (1, [])


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
def test_restart_with_the_clock_ahead_takes_no_lease(fleet: Fleet, tmp_path: Path, ending: signal.Signals) -> None:
    """A restarted server whose clock is a minute ahead, twice the lease length, does not expire the lease."""
    clock, port = FileClock(tmp_path / "clock"), stable_port()
    server, wire = fleet.server(port=port, **clock.environment)
    fleet.worker(wire.target, "--slots", "1")
    job_id = wire.running(ms=3_000)
    server.signal(ending)
    server.wait()
    clock.step(60_000)
    server, _ = fleet.server(port=port, **clock.environment)
    assert wire.wait_for(job_id).status == public.DONE
    server.stop()
    found = events_in(tmp_path / "data")
    assert grants(found) == Counter({job_id: 1})
    assert revocations(found) == []


def test_stop_that_is_longer_than_a_lease_takes_no_lease(fleet: Fleet, tmp_path: Path) -> None:
    """A worker keeps its job while its server is down for longer than a lease."""
    port, times = stable_port(), ("--lease-ms", "2000", "--heartbeat-ms", "200", "--worker-timeout-ms", "1000")
    server, wire = fleet.server(*times, port=port)
    worker = fleet.worker(wire.target, "--slots", "1", "--log-format", "json")
    job_id = wire.running(ms=5_000)
    assert server.stop() == 0
    eventually(lambda: worker.lines("disconnected"))
    pause(3)
    server, _ = fleet.server(*times, port=port)
    assert wire.wait_for(job_id).status == public.DONE
    server.stop()
    found = events_in(tmp_path / "data")
    assert grants(found) == Counter({job_id: 1})
    assert revocations(found) == []
    assert checked(tmp_path / "data").jobs[job_id].losses == 0


def test_heartbeats_are_not_journaled(fleet: Fleet, tmp_path: Path) -> None:
    """The journal has no event for a heartbeat, except the first one after a restart."""
    port, times = stable_port(), ("--heartbeat-ms", "20", "--worker-timeout-ms", "5000")
    server, wire = fleet.server(*times, port=port)
    fleet.worker(wire.target, "--slots", "1")
    assert wire.wait_for(wire.running(ms=1_000)).status == public.DONE
    job_id = wire.running(ms=2_000)
    server.kill()
    server, _ = fleet.server(*times, port=port)
    assert wire.wait_for(job_id).status == public.DONE
    server.stop()
    assert len(list(of_kind(events_in(tmp_path / "data"), Extended))) == 1


def test_worker_of_a_killed_up_does_not_hold_its_job(fleet: Fleet, tmp_path: Path) -> None:
    """The worker of a killed `holdfast up` dies with it, and the next start grants its job at once, as a loss."""
    server, wire = fleet.up("--lease-ms", TEN_MINUTES, "--no-http", "--slots", "1")
    job_id = wire.running(ms=2_000)
    server.kill()
    server, wire = fleet.up("--lease-ms", TEN_MINUTES, "--no-http", "--slots", "1")
    assert wire.wait_for(job_id).status == public.DONE
    server.stop()
    found = events_in(tmp_path / "data")
    assert grants(found) == Counter({job_id: 2})
    assert revocations(found) == [("disconnected", True)]
