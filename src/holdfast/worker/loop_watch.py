"""Detects handlers that block the worker's event loop.

The loop sends the heartbeats. A coroutine that sleeps or computes without awaiting delays them and all other coroutines
of this worker. If it blocks for longer than a lease, the worker loses its leases. Such a coroutine cannot be
interrupted, so a warning names the jobs that may be the cause.
"""

import asyncio
import time

from holdfast.observe.logs import get_logger
from holdfast.worker.executors.asyncio_tasks import TaskExecutor

_TICK_S = 0.25
#: A longer delay is not explained by a busy machine.
BLOCKED_S = 1.0
_NAMED_MAX = 20


async def watch_loop(tasks: TaskExecutor) -> None:
    """Logs a warning whenever the loop was blocked; runs until cancelled."""
    while True:
        tasks.just_ended.clear()
        before, began_s = tasks.job_ids, time.monotonic()
        await asyncio.sleep(_TICK_S)
        late_s = time.monotonic() - began_s - _TICK_S
        if late_s > BLOCKED_S and (job_ids := list(dict.fromkeys([*before, *tasks.job_ids]))):
            get_logger().warning(
                "loop_blocked",
                blocked_ms=round(late_s * 1_000),
                job_ids=job_ids[:_NAMED_MAX],
                message="an async handler blocked the loop; make it an ordinary function, or await asyncio.to_thread()",
            )
