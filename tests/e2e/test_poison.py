"""Jobs that would kill their worker: each is contained, counted and limited by its attempts."""

from pathlib import Path

import pytest

from holdfast import limits
from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.app_jobs import APP, ROOT, app_worker, one, submit
from tests.e2e.fleet import Fleet
from tests.e2e.grpc_client import TERMINAL
from tests.e2e.history import checked
from tests.e2e.wait_until import pause

POISON = {
    "segfault": "PROCESS_DIED: killed by signal 11 (SIGSEGV)",
    "leave": "PROCESS_DIED: exited with status 3",
    "kill": "PROCESS_DIED: killed by signal 9 (SIGKILL)",
    "allocate": "MemoryError",
    "spin": "TIMEOUT",
    "large": "OUTPUT_TOO_LARGE",
    "text": "OUTPUT_NOT_BYTES",
    "unshowable": "UnshowableError: it cannot be shown",
}
#: Failures without a retry.
FINAL = {"large", "text"}
#: No timeout for the others, because a slow machine needs time to start their processes.
TIMEOUTS_MS = {"spin": 1_000}


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


@pytest.mark.parametrize("isolation", ["as they say", "process"])
def test_poison_in_processes_is_contained(fleet: Fleet, tmp_path: Path, isolation: str) -> None:
    """Jobs that crash in child processes end FAILED after their attempts, and the worker runs other jobs."""
    server, wire = fleet.server()
    forced = isolation == "process"
    worker = app_worker(fleet, wire, "-c", "2", "--child-memory-mb", "1024", *(["--isolation", "process"] * forced))
    mode = "thread" if forced else "process"
    ids = {
        name: one(wire, f"{mode}.{name}", tmp_path / name, timeout_ms=TIMEOUTS_MS.get(name, 0), max_attempts=2)
        for name in POISON
    }
    healthy = [one(wire, "thread.echo", "fine") for _ in range(20)]
    assert {wire.wait_for(job_id).status for job_id in healthy} == {public.DONE}
    reasons = {name: wire.wait_for(job_id).failure_reason for name, job_id in ids.items()}
    assert reasons == POISON
    assert worker.stop() == 0
    assert len(worker.lines("child_died")) == 6  # the log is complete now
    server.stop()
    jobs = checked(tmp_path / "data").jobs
    # Not the number of grants: a slow worker hands back leases that wait for long.
    before_the_last = {name: (jobs[job_id].failures, jobs[job_id].losses) for name, job_id in ids.items()}
    assert before_the_last == {name: (0 if name in FINAL else 1, 0) for name in POISON}


def test_poison_in_a_thread_costs_the_worker_and_no_other_job(fleet: Fleet, tmp_path: Path) -> None:
    """A segfault in a thread kills its worker, ends FAILED after its maximum of losses, and other jobs are DONE."""
    server, wire = fleet.server()
    poison = one(wire, "thread.segfault")
    healthy = submit(wire, "thread.echo", count=10)
    while wire.status(poison).status != public.FAILED:
        # Do not wait for the ready line: the worker may already have crashed.
        worker = fleet.start("worker", "--connect", wire.target, "-A", APP, "-c", "4", PYTHONPATH=ROOT)
        while worker.is_running() and wire.status(poison).status != public.FAILED:
            pause()
    app_worker(fleet, wire)
    assert {wire.wait_for(job_id).status for job_id in healthy} == {public.DONE}
    server.stop()
    assert checked(tmp_path / "data").jobs[poison].losses == limits.LOSSES_DEFAULT + 1


def test_job_beside_a_poison_job_is_not_lost_with_it(fleet: Fleet) -> None:
    """Two jobs that are lost together run alone on their last chance, so only the poison job ends FAILED."""
    _, wire = fleet.server()
    poison, beside = wire.new(ms=100, labels={"sim.crash": "1"}), wire.new(ms=200)

    def are_over() -> bool:
        return all(wire.status(job_id).status in TERMINAL for job_id in (poison, beside))

    while not are_over():
        worker = fleet.start("worker", "--connect", wire.target, "-c", "2")
        while worker.is_running() and not are_over():
            pause()
    assert (wire.status(poison).failure_reason, wire.status(beside).status) == ("WORKER_LOST", public.DONE)
