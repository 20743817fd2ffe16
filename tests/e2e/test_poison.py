"""Jobs that would take a worker with them: each is contained, counted, and bounded by its attempts."""

from pathlib import Path

import pytest

from holdfast import limits
from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.app_jobs import APP, ROOT, app_worker, one, submit
from tests.e2e.fleet import Fleet
from tests.e2e.history import checked
from tests.e2e.waiting import pause
from tests.e2e.wire import TERMINAL

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
#: Trying again cannot help these.
FINAL = {"large", "text"}
#: The others may take as long as a slow machine needs to start their processes.
TIMEOUTS_MS = {"spin": 1_000}


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """Processes of a program that is loaded once: how it is loaded is no part of these tests."""
    return loaded_fleet


@pytest.mark.parametrize("isolation", ["as they say", "process"])
def test_poison_in_processes_is_contained(fleet: Fleet, tmp_path: Path, isolation: str) -> None:
    """Each kind fails by its attempts and for its reason; the worker lives, and healthy jobs beside them are done."""
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
    assert len(worker.lines("child_died")) == 6  # all of its log is there now
    server.stop()
    jobs = checked(tmp_path / "data").jobs
    # Not how often it was given out: what waits in a slow worker for long is handed back.
    before_the_last = {name: (jobs[job_id].failures, jobs[job_id].losses) for name, job_id in ids.items()}
    assert before_the_last == {name: (0 if name in FINAL else 1, 0) for name in POISON}


def test_poison_in_a_thread_costs_the_worker_and_no_other_job(fleet: Fleet, tmp_path: Path) -> None:
    """Without isolation a segfault is a lost worker: bounded by the losses, and healthy jobs are done all the same."""
    server, wire = fleet.server()
    poison = one(wire, "thread.segfault")
    healthy = submit(wire, "thread.echo", count=10)
    while wire.status(poison).status != public.FAILED:
        # Not waited for until it is ready: it may be gone before anybody looks.
        worker = fleet.start("worker", "--connect", wire.target, "-A", APP, "-c", "4", PYTHONPATH=ROOT)
        while worker.is_running() and wire.status(poison).status != public.FAILED:
            pause()
    app_worker(fleet, wire)
    assert {wire.wait_for(job_id).status for job_id in healthy} == {public.DONE}
    server.stop()
    assert checked(tmp_path / "data").jobs[poison].losses == limits.LOSSES_DEFAULT + 1


def test_job_beside_a_poison_job_is_not_lost_with_it(fleet: Fleet) -> None:
    """Two jobs that are lost together each run alone on their last chance: one kills its worker again, one is done."""
    _, wire = fleet.server()
    poison, beside = wire.new(ms=100, labels={"sim.crash": "1"}), wire.new(ms=200)

    def are_over() -> bool:
        return all(wire.status(job_id).status in TERMINAL for job_id in (poison, beside))

    while not are_over():
        worker = fleet.start("worker", "--connect", wire.target, "-c", "2")
        while worker.is_running() and not are_over():
            pause()
    assert (wire.status(poison).failure_reason, wire.status(beside).status) == ("WORKER_LOST", public.DONE)
