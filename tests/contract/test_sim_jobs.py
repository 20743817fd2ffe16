"""Simulated work through the real worker: what the frozen contract's specs lead to."""

import pytest

from holdfast.proto import taskqueue_public_pb2 as public
from tests.contract.served import Serving, Topology
from tests.e2e.wire import Wire


@pytest.fixture(scope="module")
def wire(serve: Serving) -> Wire:
    """A topology with a worker of two slots, or so many in each node."""
    return serve(slots=2).wire


@pytest.mark.parametrize("job_type", ["sim", "no-handler-knows-this", "free text, ünï¢ödé"])
def test_type_that_no_handler_knows_runs_as_simulated_work(wire: Wire, job_type: str) -> None:
    """Whatever the type says, the job sleeps, returns its bytes and is DONE at the first attempt."""
    job_id = wire.new(job_type=job_type, ms=1, size=10)
    assert wire.wait_for(job_id).status == public.DONE
    assert wire.result(job_id).output_bytes == b"." * 10


def test_simulated_work_takes_its_time(wire: Wire) -> None:
    """The runtime of a job is at least the duration in its spec."""
    job_id = wire.new(ms=30)
    wire.wait_for(job_id)
    assert wire.result(job_id).runtime_ms >= 29


def test_label_makes_a_job_fail_with_its_reason(wire: Wire) -> None:
    """`sim.fail` ends the job FAILED with that reason."""
    job = wire.wait_for(wire.new(labels={"sim.fail": "BY_REQUEST"}))
    assert (job.status, job.failure_reason) == (public.FAILED, "BY_REQUEST")


def test_jobs_of_the_frozen_contract_have_one_attempt(wire: Wire) -> None:
    """A job that would succeed at its second attempt is not given one."""
    job = wire.wait_for(wire.new(labels={"sim.fail": "ONCE", "sim.fail_attempts": "1"}))
    assert (job.status, job.failure_reason) == (public.FAILED, "ONCE")


def test_largest_output_is_returned_and_one_byte_more_is_refused(wire: Wire) -> None:
    """256 KiB come back whole; a spec that asks for one byte more ends FAILED with OUTPUT_TOO_LARGE."""
    fitting, over, absurd = wire.new(size=262_144), wire.new(size=262_145), wire.new(size=2**32 - 1)
    assert wire.wait_for(fitting).status == public.DONE
    assert len(wire.result(fitting).output_bytes) == 262_144
    for job_id in (over, absurd):
        assert wire.wait_for(job_id).failure_reason == "OUTPUT_TOO_LARGE"
        assert wire.result(job_id).output_bytes == b""


def test_running_job_is_stopped_by_a_cancel(wire: Wire) -> None:
    """A worker that hears of the cancel stops an hour's work at once, and the job is CANCELED."""
    job_id = wire.new(ms=3_600_000)
    wire.wait_for(job_id, public.RUNNING)
    assert wire.cancel(job_id, "too long").current_status in (public.RUNNING, public.CANCELED)
    assert wire.wait_for(job_id).status == public.CANCELED
    result = wire.result(job_id)
    assert result.result_ready
    assert result.output_summary != ""


def test_job_that_kills_its_worker_ends_failed_and_others_flow(serve: Serving) -> None:
    """A poison job is FAILED with WORKER_LOST once its losses are spent, and those behind it run."""
    wire = serve(slots=1, nodes=1).wire
    poison = wire.new(key="poison", labels={"sim.crash": "1"})
    behind = [wire.new(key=f"behind-{number}") for number in range(3)]
    job = wire.wait_for(poison)
    assert (job.status, job.failure_reason) == (public.FAILED, "WORKER_LOST")
    assert [wire.wait_for(job_id).status for job_id in behind] == [public.DONE] * 3


def test_job_beside_a_poison_job_is_not_lost_with_it(serve: Serving, wire: Wire) -> None:
    """A job that runs beside one that kills the worker is run again until it is DONE."""
    if serve.topology is Topology.MONOLITH:  # both of one node
        wire = serve(slots=2, nodes=1).wire
    poison, beside = wire.new(key="poison", labels={"sim.crash": "1"}), wire.new(key="beside", ms=200)
    wire.wait_for(poison)
    assert wire.wait_for(beside).status == public.DONE
