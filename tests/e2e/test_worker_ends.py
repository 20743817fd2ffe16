"""Shutdown of a worker with an app: drained, stopped twice, killed or recycled, and the fate of its jobs."""

import signal
from collections import Counter
from pathlib import Path

import pytest

from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.app_jobs import app_worker, is_gone, one, pid_in, submit
from tests.e2e.fleet import Fleet, Program, stable_port
from tests.e2e.history import checked, events_in, grants, revocations
from tests.e2e.wait_until import eventually

TEN_MINUTES = "600000"
MODES = ["thread.hold", "process.hold", "async.ahold"]


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


def ready_lines(worker: Program) -> int:
    return worker.output.count('"ready"')


@pytest.mark.parametrize("job_type", MODES)
def test_term_lets_a_job_finish(fleet: Fleet, tmp_path: Path, job_type: str) -> None:
    """After SIGTERM a worker takes no new job, finishes its running one and exits with 0."""
    server, wire = fleet.server()
    worker = app_worker(fleet, wire, "-c", "1")
    job_id = one(wire, job_type, tmp_path / "pid")
    pid_in(tmp_path / "pid")
    worker.signal(signal.SIGTERM)
    eventually(lambda: worker.lines("draining"))
    later = one(wire, "thread.echo")
    (tmp_path / "pid").unlink()
    assert worker.wait() == 0
    assert wire.status(job_id).status == public.DONE
    assert wire.status(later).status == public.QUEUED
    server.stop()
    found = events_in(tmp_path / "data")
    assert grants(found)[job_id] == 1
    # Leases sent before the server knows of the drain are handed back without a loss.
    assert set(revocations(found)) <= {("released", False)}


@pytest.mark.parametrize("job_type", [*MODES, "thread.stuck", "process.stubborn", "async.swallow"])
def test_second_term_hands_a_job_back(fleet: Fleet, tmp_path: Path, job_type: str) -> None:
    """After a second SIGTERM a worker hands any job back without a loss, even a stuck one, and leaves no process."""
    server, wire = fleet.server()
    worker = app_worker(fleet, wire, "-c", "1", "--drain-ms", TEN_MINUTES, "--kill-grace-ms", "100")
    job_id = one(wire, job_type, tmp_path / "pid")
    pid = pid_in(tmp_path / "pid")
    worker.signal(signal.SIGTERM)
    eventually(lambda: worker.lines("draining"))
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    eventually(lambda: is_gone(pid))
    server.stop()
    job = checked(tmp_path / "data").jobs[job_id]
    assert (job.state, job.losses) == (public.QUEUED, 0)
    assert revocations(events_in(tmp_path / "data")) == [("released", False)]


@pytest.mark.parametrize("job_type", MODES)
def test_job_of_a_killed_worker_is_taken_over(fleet: Fleet, tmp_path: Path, job_type: str) -> None:
    """A killed worker's children end with it, and another worker finishes the job."""
    server, wire = fleet.server("--lease-ms", TEN_MINUTES)
    doomed = app_worker(fleet, wire, "-c", "1")
    job_id = one(wire, job_type, tmp_path / "pid")
    pid = pid_in(tmp_path / "pid")
    doomed.kill()
    eventually(lambda: is_gone(pid))
    (tmp_path / "pid").unlink()
    app_worker(fleet, wire, "-c", "1")
    assert pid_in(tmp_path / "pid") != pid
    (tmp_path / "pid").unlink()
    assert wire.wait_for(job_id).status == public.DONE
    server.stop()
    job = checked(tmp_path / "data").jobs[job_id]
    assert (job.attempts, job.losses) == (2, 1)


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
def test_jobs_outlive_a_restart_of_the_server(fleet: Fleet, tmp_path: Path, ending: signal.Signals) -> None:
    """Jobs in threads, processes and on the loop continue while the server restarts, and each is reported once."""
    port = stable_port()
    server, wire = fleet.server("--lease-ms", TEN_MINUTES, port=port)
    app_worker(fleet, wire, "-c", "4")
    ids = [one(wire, job_type, tmp_path / job_type) for job_type in MODES]
    for job_type in MODES:
        pid_in(tmp_path / job_type)
    server.signal(ending)
    server.wait()
    for job_type in MODES[:2]:
        (tmp_path / job_type).unlink()
    server, _ = fleet.server("--lease-ms", TEN_MINUTES, port=port)
    (tmp_path / MODES[2]).unlink()
    assert [wire.wait_for(job_id).status for job_id in ids] == [public.DONE] * 3
    server.stop()
    found = events_in(tmp_path / "data")
    assert grants(found) == dict.fromkeys(ids, 1)
    assert revocations(found) == []


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_recycling_keeps_every_job(fleet: Fleet, tmp_path: Path, mode: str) -> None:
    """A worker that recycles after a few jobs runs each job once, and keeps its own pid."""
    server, wire = fleet.server()
    worker = app_worker(fleet, wire, "-c", "2", "--max-jobs", "20")
    ids: list[str] = []
    for _ in range(5):
        ids += submit(wire, f"{mode}.count", tmp_path / "runs", count=20)
        assert {wire.wait_for(job_id).status for job_id in ids} == {public.DONE}
    assert Counter((tmp_path / "runs").read_text().split()) == Counter(ids)
    pids = {int(wire.result(job_id).output_bytes) for job_id in ids}
    if mode == "thread":
        assert len(worker.lines("recycling")) >= 3
        assert pids == {worker.pid}
    else:
        assert len(pids) >= 4
    assert worker.stop() == 0, "the worker must exit with 0, even during a recycle"
    server.stop()


def test_worker_without_a_sound_slot_replaces_itself(fleet: Fleet, tmp_path: Path) -> None:
    """A worker whose slots all hold written-off attempts replaces itself and continues."""
    _, wire = fleet.server()
    worker = app_worker(fleet, wire, "-c", "1", "--kill-grace-ms", "100")
    stuck = one(wire, "thread.stuck", tmp_path / "pid", timeout_ms=200)
    assert wire.wait_for(stuck).failure_reason == "TIMEOUT"
    eventually(lambda: ready_lines(worker) == 2, what="the fresh process")
    echo = one(wire, "thread.echo", "x")
    assert wire.wait_for(echo).status == public.DONE
    assert [line["mode"] for line in worker.lines("written_off")] == ["thread"]


def test_worker_that_grows_too_large_replaces_itself(fleet: Fleet) -> None:
    """A worker above its memory limit replaces itself, and its jobs are DONE."""
    _, wire = fleet.server("--heartbeat-ms", "50")
    worker = app_worker(fleet, wire, "-c", "1", "--max-memory-mb", "150")
    ids = submit(wire, "thread.grow", count=6)
    assert {wire.wait_for(job_id).status for job_id in ids} == {public.DONE}
    eventually(lambda: worker.lines("recycling"))
    assert "MiB of memory" in worker.lines("recycling")[0]["message"]


def test_blocked_loop_is_named(fleet: Fleet) -> None:
    """A worker logs an async handler that blocks its loop, with the job id, and continues afterwards."""
    _, wire = fleet.server()
    worker = app_worker(fleet, wire)
    job_id = one(wire, "async.block")
    assert wire.wait_for(job_id).status == public.DONE
    # A stalled machine blocks a loop as well, without a job to name.
    eventually(lambda: [line["job_ids"] for line in worker.lines("loop_blocked")], lambda told: [job_id] in told)
    assert wire.wait_for(one(wire, "thread.echo")).status == public.DONE


def test_long_jobs_are_shared_by_workers_that_were_fast(fleet: Fleet) -> None:
    """After thousands of short jobs, two workers still share long ones."""
    _, wire = fleet.server("--heartbeat-ms", "200")
    for name in ("a", "b"):
        app_worker(fleet, wire, "-c", "2", "--worker-id", name)

    def shares() -> list[int]:
        for _ in range(5):
            for job_id in submit(wire, "thread.echo", "x", count=500)[-20:]:
                wire.wait_for(job_id)
        naps = submit(wire, "thread.nap", count=24)
        assert {wire.wait_for(job_id).status for job_id in naps} == {public.DONE}
        return sorted(Counter(wire.result(job_id).output_bytes for job_id in naps).values())

    # A worker that stalls for a moment leaves its share to the other.
    eventually(shares, lambda found: len(found) == 2 and found[0] >= 8, what="fair shares")
