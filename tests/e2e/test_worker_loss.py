"""Workers that die, stall and come back, and a coordinator that restarts or stalls."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.fleet import Fleet, Program, clean_environment, stable_port
from tests.e2e.grpc_client import TERMINAL, Wire
from tests.e2e.history import checked, events_in, grants, refused_reports, revocations
from tests.e2e.wait_until import DEADLINE_S, eventually, pause

TEN_MINUTES = "600000"


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


def frozen_worker(fleet: Fleet, root: Path, wire: Wire, worker_id: str, file: Path) -> Program:
    """Starts a worker of the frozen contract that has fetched its job and waits for the file."""
    command = [sys.executable, "-m", "tests.e2e.frozen_worker", wire.target, worker_id, str(file)]
    with (fleet.folder / "adopted.out").open("wb") as out:
        popen = subprocess.Popen(command, cwd=root, env=clean_environment({}), stdout=out)
    worker = fleet.adopt(popen)
    eventually(lambda: len(worker.output), what="the job id of the worker")
    return worker


FORKING = """
import os
import threading
from pathlib import Path

from holdfast import Holdfast, current

app = Holdfast("holdfast://{target}")


@app.job
def fork(folder: str) -> int:
    if current().attempt == 1:
        if os.fork() == 0:
            os._exit(Path(folder, "gate").open().close() or 0)
        Path(folder, "forked").touch()
        threading.Event().wait()
    return current().attempt
"""


def test_job_of_a_killed_worker_is_finished_although_a_forked_child_lives(fleet: Fleet, tmp_path: Path) -> None:
    """A forked child of a job does not keep the connection of its killed worker open."""
    _, wire = fleet.server("--lease-ms", TEN_MINUTES)
    (fleet.folder / "forking.py").write_text(FORKING.format(target=wire.target))
    os.mkfifo(tmp_path / "gate")
    doomed = fleet.start("worker", "-A", "forking:app", "--worker-id", "doomed")
    with Holdfast(f"holdfast://{wire.target}") as app:
        job = app.submit("fork", [str(tmp_path)])
        eventually((tmp_path / "forked").exists, what="a job that has forked")
        doomed.kill()
        fleet.start("worker", "-A", "forking:app", "--worker-id", "heir")
        assert job.result(timeout_s=DEADLINE_S) == 2
    os.close(os.open(tmp_path / "gate", os.O_WRONLY))  # lets the forked child end


def test_job_of_a_killed_worker_is_finished_by_another(fleet: Fleet, tmp_path: Path) -> None:
    """The job of a killed worker is granted again at once, long before its lease ends, and counts one loss."""
    server, wire = fleet.server("--lease-ms", TEN_MINUTES)
    doomed = fleet.worker(wire.target, "--slots", "1", "--worker-id", "doomed")
    job_id = wire.running(ms=3_000)
    doomed.kill()
    fleet.worker(wire.target, "--slots", "1", "--worker-id", "heir")
    assert wire.wait_for(job_id).status == public.DONE
    server.stop()
    job = checked(tmp_path / "data").jobs[job_id]
    assert (job.losses, job.attempts) == (1, 2)
    assert revocations(events_in(tmp_path / "data")) == [("disconnected", True)]


def test_late_result_of_a_stopped_worker_is_refused_and_kept_as_evidence(
    fleet: Fleet, tmp_path: Path, root: Path
) -> None:
    """A worker stopped past its lease has its report refused, and the journal records the refusal."""
    server, wire = fleet.server("--lease-ms", "300")
    job_id = wire.new()
    stalled = frozen_worker(fleet, root, wire, "stalled", tmp_path / "go")
    stalled.signal(signal.SIGSTOP)
    wire.wait_for(job_id, public.QUEUED)

    def is_reported_in_time() -> bool:
        work = wire.fetch("heir")
        return work.assigned and wire.report("heir", job_id, token=work.token, output_bytes=b"in time")

    eventually(is_reported_in_time, what="a report within the lease")
    (tmp_path / "go").touch()
    stalled.signal(signal.SIGCONT)
    assert stalled.wait() == 0
    assert stalled.output.split() == [job_id, "False"]
    assert wire.result(job_id).output_bytes == b"in time"
    server.stop()
    found = events_in(tmp_path / "data")
    assert refused_reports(found)[-1] == (job_id, "ALREADY_FINISHED")
    assert set(revocations(found)) == {("expired", True)}
    assert checked(tmp_path / "data").unfinished == []


def lost_by(worker: Program, wire: Wire) -> str:
    """Returns a job that the stopped worker has lost; tries another if the job had already ended."""
    while True:
        job_id = wire.running(ms=1_000)
        worker.signal(signal.SIGSTOP)
        if wire.wait_for(job_id, public.QUEUED, *TERMINAL).status == public.QUEUED:
            return job_id
        worker.signal(signal.SIGCONT)


def test_stopped_worker_that_comes_back_does_no_harm_and_works_on(fleet: Fleet, tmp_path: Path) -> None:
    """A streaming worker that was stopped past its lease leaves one result per job and takes new jobs again."""
    server, wire = fleet.server("--lease-ms", "500", "--heartbeat-ms", "100", "--worker-timeout-ms", "400")
    stalled = fleet.worker(wire.target, "--slots", "1", "--worker-id", "stalled")
    job_id = lost_by(stalled, wire)
    heir = fleet.worker(wire.target, "--slots", "1", "--worker-id", "heir")
    wire.wait_for(job_id)
    stalled.signal(signal.SIGCONT)
    heir.stop()
    later = wire.new()
    assert wire.wait_for(later).status == public.DONE
    server.stop()
    model = checked(tmp_path / "data")
    assert model.unfinished == []
    assert model.jobs[job_id].losses >= 1


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
def test_worker_that_outlives_a_restart_keeps_its_lease(fleet: Fleet, tmp_path: Path, ending: signal.Signals) -> None:
    """A worker keeps its leases while the server restarts after a kill or a stop."""
    port = stable_port()
    server, wire = fleet.server("--lease-ms", TEN_MINUTES, port=port)
    worker = fleet.worker(wire.target, "--slots", "3")
    ids = [wire.new(ms=2_500), wire.new(ms=600_000), wire.new()]
    wire.wait_for(ids[2], public.DONE)  # the worker got this job, so it has those before it too
    server.signal(ending)
    server.wait()
    server, _ = fleet.server("--lease-ms", TEN_MINUTES, port=port)
    assert wire.wait_for(ids[0]).status == public.DONE
    wire.cancel(ids[1])
    assert wire.wait_for(ids[1]).status == public.CANCELED, "the worker must receive the cancel after the restart"
    server.stop()
    found = events_in(tmp_path / "data")
    assert grants(found) == dict.fromkeys(ids, 1)
    assert revocations(found) == []
    assert [line for line in worker.log.splitlines() if not line.startswith("{")] == []


def test_stopped_coordinator_expires_no_lease(fleet: Fleet, tmp_path: Path) -> None:
    """A coordinator stopped for longer than a lease revokes no lease, and no job runs twice."""
    server, wire = fleet.server("--lease-ms", "2500", "--heartbeat-ms", "100")
    fleet.worker(wire.target, "--slots", "4")
    ids = [wire.new(ms=6_000) for _ in range(4)]
    for job_id in ids:
        wire.wait_for(job_id, public.RUNNING)
    server.signal(signal.SIGSTOP)
    pause(4)
    server.signal(signal.SIGCONT)
    assert {wire.wait_for(job_id).status for job_id in ids} == {public.DONE}
    server.stop()
    found = events_in(tmp_path / "data")
    assert grants(found) == dict.fromkeys(ids, 1)
    assert revocations(found) == []


def test_waiting_for_a_stopped_server_ends_at_the_deadline(fleet: Fleet) -> None:
    """A submit to a stopped server gets DEADLINE_EXCEEDED, and a repeat with its key creates only one job."""
    server, wire = fleet.server()
    wire.new()
    server.signal(signal.SIGSTOP)
    try:
        with pytest.raises(Exception, match="Deadline Exceeded"):
            wire.submit(key="late", timeout_s=0.5)
    finally:
        server.signal(signal.SIGCONT)
    assert wire.new(key="late") == wire.new(key="late")
    assert len(wire.all_jobs()) == 2
