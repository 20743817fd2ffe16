"""Progress and log lines of running jobs, and remote drain of a worker."""

from pathlib import Path

import pytest

from holdfast.core.events import Noted
from holdfast.proto import holdfast_pb2 as own
from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.app_jobs import app_worker, one, pid_in
from tests.e2e.fleet import Fleet
from tests.e2e.grpc_client import Wire
from tests.e2e.history import events_in, of_kind
from tests.e2e.wait_until import eventually


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


def job(wire: Wire, job_id: str) -> own.Job:
    request = own.GetJobRequest(job_id=job_id).SerializeToString()
    return own.Job.FromString(wire.raw("/holdfast.v1.JobService/GetJob", request))


def drain(wire: Wire, worker_id: str) -> None:
    request = own.DrainWorkerRequest(worker_id=worker_id).SerializeToString()
    wire.raw("/holdfast.v1.AdminService/DrainWorker", request)


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_progress_is_seen_while_a_job_runs(fleet: Fleet, tmp_path: Path, mode: str) -> None:
    """A client sees the progress of a running job, and its log lines are in the journal."""
    server, wire = fleet.server("--heartbeat-ms", "50")
    app_worker(fleet, wire)
    job_id = one(wire, f"{mode}.say_and_hold", tmp_path / "pid")
    seen = eventually(lambda: job(wire, job_id), lambda job: job.progress.permille)
    assert (seen.progress.permille, seen.progress.message, seen.status) == (500, "half", public.RUNNING)
    (tmp_path / "pid").unlink()
    assert wire.wait_for(job_id).status == public.DONE
    server.stop()
    noted = [note for event in of_kind(events_in(tmp_path / "data"), Noted) for note in event.notes]
    assert [line for note in noted for line in note.lines] == ["under way"]


def test_worker_that_is_asked_to_drain_finishes_and_ends(fleet: Fleet, tmp_path: Path) -> None:
    """A worker that is drained remotely finishes its job and exits with 0."""
    _, wire = fleet.server()
    worker = app_worker(fleet, wire, "--worker-id", "asked")
    job_id = one(wire, "thread.hold", tmp_path / "pid")
    pid_in(tmp_path / "pid")
    drain(wire, "asked")
    eventually(lambda: worker.lines("draining"))
    (tmp_path / "pid").unlink()
    assert worker.wait() == 0
    assert wire.status(job_id).status == public.DONE


def test_drained_worker_of_up_is_not_started_again(fleet: Fleet) -> None:
    """`holdfast up` does not restart its worker after a remote drain, and its server continues."""
    up, wire = fleet.up("--worker-id", "beside")
    drain(wire, "beside")
    eventually(lambda: up.lines("role_left"))
    assert up.children() == []
    waiting = wire.new()
    assert wire.status(waiting).status == public.QUEUED
    assert up.stop() == 0
