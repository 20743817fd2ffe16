"""Jobs in a state that a test needs, brought there by a real worker or by the test as a worker."""

from pathlib import Path
from typing import Any

from holdfast.proto import taskqueue_internal_pb2 as internal
from holdfast.proto import taskqueue_public_pb2 as public
from tests.contract.worker_app import FINISH_ANYWAY
from tests.e2e.waiting import eventually
from tests.e2e.wire import Wire

NO_JOB = "00000000-0000-4000-8000-000000000000"
HOUR_MS = 3_600_000


def ended(wire: Wire, **spec: Any) -> str:  # noqa: ANN401 - the fields of `Wire.submit`
    """A job that the real worker has run to its end."""
    job_id = wire.new(**spec)
    wire.wait_for(job_id)
    return job_id


def running(wire: Wire) -> str:
    """A job that the real worker runs, for an hour unless it is canceled."""
    job_id = wire.new(ms=HOUR_MS)
    wire.wait_for(job_id, public.RUNNING)
    return job_id


def unstoppable(wire: Wire, folder: Path) -> str:
    """A job that the real worker runs, and that succeeds when it is canceled."""
    started = folder / "started"
    job_id = wire.new(job_type=FINISH_ANYWAY, labels={"started": str(started)})
    eventually(started.exists, what="a job that has begun")
    return job_id


def assigned(wire: Wire, worker: str = "w", **spec: Any) -> internal.FetchWorkResponse:  # noqa: ANN401 - see above
    """A new job that the test has fetched as a worker; older ones are canceled, so that it is the next."""
    for job in wire.all_jobs(public.QUEUED):
        wire.cancel(job.job_id)
    job_id = wire.new(**spec)
    work = wire.fetch(worker)
    assert (work.assigned, work.job_id) == (True, job_id)
    return work


def fetched(wire: Wire, worker: str) -> internal.FetchWorkResponse:
    """The next job; one that was taken away is QUEUED a moment before it can be fetched again."""
    return eventually(lambda: wire.fetch(worker), lambda work: work.assigned)


def reported(wire: Wire, outcome: int, **fields: Any) -> str:  # noqa: ANN401 - the fields of the message
    """A job on which the test has reported as its worker."""
    work = assigned(wire)
    assert wire.report("w", work.job_id, outcome, token=work.token, **fields)
    return work.job_id
