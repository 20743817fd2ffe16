"""Jobs in a state that a test needs, brought there by a real worker or by the test acting as a worker."""

from pathlib import Path
from typing import Any

from holdfast.proto import taskqueue_internal_pb2 as internal
from holdfast.proto import taskqueue_public_pb2 as public
from tests.contract.worker_app import FINISH_ANYWAY
from tests.e2e.grpc_client import Wire
from tests.e2e.wait_until import eventually

NO_JOB = "00000000-0000-4000-8000-000000000000"
HOUR_MS = 3_600_000


def ended(wire: Wire, **spec: Any) -> str:  # noqa: ANN401 - the fields of `Wire.submit`
    """Submits a job that the real worker runs to its end."""
    job_id = wire.new(**spec)
    wire.wait_for(job_id)
    return job_id


def running(wire: Wire) -> str:
    """Submits a job that the real worker runs for an hour unless it is canceled."""
    job_id = wire.new(ms=HOUR_MS)
    wire.wait_for(job_id, public.RUNNING)
    return job_id


def unstoppable(wire: Wire, folder: Path) -> str:
    """Submits a job that the real worker runs, and that succeeds when it is canceled."""
    started = folder / "started"
    job_id = wire.new(job_type=FINISH_ANYWAY, labels={"started": str(started)})
    eventually(started.exists, what="a job that has started")
    return job_id


def assigned(wire: Wire, worker: str = "w", **spec: Any) -> internal.FetchWorkResponse:  # noqa: ANN401 - see above
    """Submits a job and fetches it as a worker; older jobs are canceled first, so that this job is the next one."""
    for job in wire.all_jobs(public.QUEUED):
        wire.cancel(job.job_id)
    job_id = wire.new(**spec)
    work = wire.fetch(worker)
    assert (work.assigned, work.job_id) == (True, job_id)
    return work


def fetched(wire: Wire, worker: str) -> internal.FetchWorkResponse:
    """Fetches the next job; a job that returned to the queue is QUEUED shortly before it can be fetched."""
    return eventually(lambda: wire.fetch(worker), lambda work: work.assigned)


def reported(wire: Wire, outcome: int, **fields: Any) -> str:  # noqa: ANN401 - the fields of the message
    """Submits a job, fetches it and reports its outcome as a worker."""
    work = assigned(wire)
    assert wire.report("w", work.job_id, outcome, token=work.token, **fields)
    return work.job_id
