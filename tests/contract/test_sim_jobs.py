"""Simulated work of the frozen contract's job specs, on a real worker."""

import pytest

from holdfast.proto import taskqueue_public_pb2 as public
from tests.contract.served import LEASE_MS, Serving
from tests.e2e.grpc_client import Wire

#: The lease of a job that kills its worker, in topologies that detect the loss only by the lease.
SHORT_LEASE_MS = 1_500


@pytest.fixture(scope="module")
def wire(serve: Serving) -> Wire:
    """A topology with a worker of two slots, or with two slots in each node."""
    return serve.with_slots_in_its_nodes(slots=2, nodes=2, lease_ms=LEASE_MS).wire


@pytest.mark.parametrize("job_type", ["sim", "no-handler-knows-this", "free text, ünï¢ödé"])
def test_type_that_no_handler_knows_runs_as_simulated_work(wire: Wire, job_type: str) -> None:
    """A worker runs a job of any type without a handler as simulated work, and it is DONE at the first attempt."""
    job_id = wire.new(job_type=job_type, ms=1, size=10)
    assert wire.wait_for(job_id).status == public.DONE
    assert wire.result(job_id).output_bytes == b"." * 10


def test_simulated_work_takes_its_time(wire: Wire) -> None:
    """The runtime of a job is at least the duration in its spec."""
    job_id = wire.new(ms=30)
    wire.wait_for(job_id)
    assert wire.result(job_id).runtime_ms >= 29


def test_label_makes_a_job_fail_with_its_reason(wire: Wire) -> None:
    """The label `sim.fail` makes the job FAILED with the given reason."""
    job = wire.wait_for(wire.new(labels={"sim.fail": "BY_REQUEST"}))
    assert (job.status, job.failure_reason) == (public.FAILED, "BY_REQUEST")


def test_jobs_of_the_frozen_contract_have_one_attempt(wire: Wire) -> None:
    """A job of the frozen contract that fails at its first attempt is FAILED without a second attempt."""
    job = wire.wait_for(wire.new(labels={"sim.fail": "ONCE", "sim.fail_attempts": "1"}))
    assert (job.status, job.failure_reason) == (public.FAILED, "ONCE")


def test_job_that_kills_its_worker_ends_failed_and_others_flow(serve: Serving) -> None:
    """A job that kills its worker is FAILED with WORKER_LOST when its losses are used up, and later jobs run."""
    served = serve.with_slots_in_its_nodes(slots=1, nodes=1, lease_ms=SHORT_LEASE_MS)
    poison = served.new("poison", labels={"sim.crash": "1"})
    behind = [served.new(f"behind-{number}") for number in range(3)]
    job = served.wait_for(poison)
    assert (job.status, job.failure_reason) == (public.FAILED, "WORKER_LOST")
    assert served.wire.result(poison).output_summary
    assert [served.wait_for(job_id).status for job_id in behind] == [public.DONE] * 3
