"""Checks whether any worker can run the job that `result()` waits for.

Only workers of this process run jobs of `memory://`. If there is none, `result()` would wait for ever, so it raises
instead. On other backends a worker may be started at any time, so `result()` continues to wait and logs a warning once.
"""

from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError
from holdfast.sdk.errors import NoWorkerError

if TYPE_CHECKING:
    from holdfast.sdk.connection import AppConnection

#: How long `result()` waits for a worker of this process before it raises. Long enough for a program whose other
#: threads are about to make a worker, short enough for a test that has none by mistake.
ATTENDED_S = 1.0
#: How long `result()` waits before it checks whether any worker can run the job.
SERVED_S = 5.0
#: Reasons of jobs that do not run until an operator starts a worker or resumes a queue.
STUCK = frozenset({"NO_WORKER", "TYPE_UNKNOWN", "QUEUE_UNSERVED", "QUEUE_PAUSED"})
#: Time limit for reading the explanation.
_EXPLAIN_S = 1.0


async def is_attended(connection: "AppConnection") -> bool:
    """Whether this process has a worker for a private link: one of the app, or any other with a session."""
    if connection.workers:
        return True
    workers = await connection.call(lambda ports: ports.admin.workers())
    return any(worker.is_streaming for worker in workers)


async def check_attended(connection: "AppConnection", job_id: str) -> None:
    """Raises NoWorkerError if no worker of this process can run the job."""
    if not await is_attended(connection):
        raise NoWorkerError(job_id)


async def warn_if_stuck(connection: "AppConnection", job_id: str) -> None:
    """Logs a warning if no worker can run the job now, once for each cause."""
    import asyncio

    from holdfast.observe.logs import get_logger

    try:
        async with asyncio.timeout(_EXPLAIN_S):
            found = await connection.call(lambda ports: ports.jobs.explain(job_id))
    except (HoldfastError, TimeoutError):
        return
    if found.reason in STUCK and found.sentence not in connection.warned:
        connection.warned.add(found.sentence)
        get_logger().warning("result_waits", job_id=job_id, reason=found.reason, message=found.sentence)
