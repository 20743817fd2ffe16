"""The order of grants, and very short leases."""

from collections import Counter
from pathlib import Path

import pytest

from holdfast.core.events import Granted, Revoked
from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.fleet import Fleet
from tests.e2e.history import checked, events_in, grants, of_kind
from tests.e2e.wait_until import eventually

#: Long intervals, so that a slow worker does not hand back waiting leases, which it does at heartbeats.
CALM = ("--heartbeat-ms", "60000", "--worker-timeout-ms", "120000", "--lease-ms", "600000")


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


def test_jobs_start_in_the_order_of_their_submits(fleet: Fleet, tmp_path: Path) -> None:
    """A worker with one slot gets the jobs in the order of their submits."""
    server, wire = fleet.server(*CALM)
    ids = [wire.new(ms=number % 3) for number in range(40)]
    fleet.worker(wire.target, "--slots", "1")
    for job_id in ids:
        assert wire.wait_for(job_id).status == public.DONE
    starts = [(wire.status(job_id).started_at_ms, number) for number, job_id in enumerate(ids)]
    assert starts == sorted(starts)
    server.stop()
    granted = [job_id for event in of_kind(events_in(tmp_path / "data"), Granted) for job_id in event.job_ids]
    assert granted == ids


def test_canceled_queued_job_never_runs(fleet: Fleet, tmp_path: Path) -> None:
    """A job canceled before a worker connects is never granted, not even after a crash."""
    server, wire = fleet.server()
    canceled, wanted = [wire.new() for _ in range(5)], []
    for job_id in canceled:
        assert wire.cancel(job_id).current_status == public.CANCELED
    server.kill()
    server, wire = fleet.server(*CALM)
    fleet.worker(wire.target)
    wanted = [wire.new() for _ in range(5)]
    for job_id in wanted:
        assert wire.wait_for(job_id).status == public.DONE
    server.stop()
    assert grants(events_in(tmp_path / "data")) == dict.fromkeys(wanted, 1)


def test_silent_holders_of_ten_millisecond_leases_fail_their_jobs(fleet: Fleet, tmp_path: Path) -> None:
    """A job whose worker stays silent past its 10 ms lease every time ends FAILED with WORKER_LOST."""
    server, wire = fleet.server("--lease-ms", "10")
    slow = wire.new()
    lost = 0
    while wire.status(slow).status not in (public.FAILED, public.DONE):
        lost += wire.fetch("slow").assigned
    job = wire.status(slow)
    assert (job.status, job.failure_reason, lost) == (public.FAILED, "WORKER_LOST", 4)
    quick = wire.new()

    def finished() -> bool:
        work = wire.fetch("quick")
        return work.assigned and wire.report("quick", quick, token=work.token)

    eventually(lambda: finished() or wire.status(quick).status == public.FAILED)
    server.stop()
    assert checked(tmp_path / "data").unfinished == []


def test_real_worker_flows_with_ten_millisecond_leases(fleet: Fleet, tmp_path: Path) -> None:
    """With leases of 10 ms every job of a real worker still ends, with a result or after its losses."""
    server, wire = fleet.up("--lease-ms", "10", "--heartbeat-ms", "10", "--slots", "2")
    long_ones = [wire.new(ms=400) for _ in range(3)]
    quick_ones = [wire.new() for _ in range(40)]
    ended = [wire.wait_for(job_id) for job_id in (*long_ones, *quick_ones)]
    assert {job.failure_reason for job in ended if job.status == public.FAILED} <= {"WORKER_LOST"}
    # On a busy machine all of those may have been lost.
    assert any(wire.wait_for(wire.new()).status == public.DONE for _ in range(200))
    server.stop()
    model = checked(tmp_path / "data")
    assert model.unfinished == []
    # A lease that a worker hands back because no slot is free does not count against the limits.
    revoked = of_kind(events_in(tmp_path / "data"), Revoked)
    rows = [pair for event in revoked for pair in zip(event.rows, event.job_ids, strict=True)]
    returned = Counter(job_id for row, job_id in rows if not row.is_spent)
    assert all(model.jobs[job_id].attempts - returned[job_id] <= 4 for job_id in (*long_ones, *quick_ones))
