"""Whether any worker can run the job that `result()` waits for.

Jobs of `memory://` are run by workers of this process alone. If there is none, `result()` would wait for ever, so it
raises instead. Elsewhere a worker may be started at any time: `result()` goes on waiting and logs a warning once.
"""

from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError
from holdfast.sdk.errors import NoWorkerError

if TYPE_CHECKING:
    from holdfast.sdk.connection import AppConnection

#: How long `result()` waits for a worker of this process to be made before it raises. Long enough for a program whose
#: other threads are about to make one, short enough for a test that has forgotten to.
ATTENDED_S = 1.0
#: How long `result()` waits before it looks whether any worker can run the job at all.
SERVED_S = 5.0
#: Why a job waits that will not run until somebody starts or resumes something.
_STUCK = frozenset({"NO_WORKER", "TYPE_UNKNOWN", "QUEUE_UNSERVED", "QUEUE_PAUSED"})
#: An explanation that takes longer than this is not worth waiting for.
_EXPLAIN_S = 1.0


async def is_attended(connection: "AppConnection") -> bool:
    """Whether this process has a worker for a private link: one of the app, or any other with a session."""
    if connection.workers:
        return True
    workers = await connection.call(lambda ports: ports.admin.workers())
    return any(worker.is_streaming for worker in workers)


async def check_attended(connection: "AppConnection", job_id: str) -> None:
    """Raise NoWorkerError if nothing will ever run a job of this process."""
    if not await is_attended(connection):
        raise NoWorkerError(job_id)


async def warn_if_stuck(connection: "AppConnection", job_id: str) -> None:
    """Log a warning if no worker can run the job now, once for each cause."""
    import asyncio

    from holdfast.observe.logs import get_logger

    try:
        async with asyncio.timeout(_EXPLAIN_S):
            found = await connection.call(lambda ports: ports.jobs.explain(job_id))
    except (HoldfastError, TimeoutError):
        return
    if found.reason in _STUCK and found.sentence not in connection.warned:
        connection.warned.add(found.sentence)
        get_logger().warning("result_waits", job_id=job_id, reason=found.reason, message=found.sentence)
