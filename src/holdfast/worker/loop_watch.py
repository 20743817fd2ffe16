"""Notices a handler that blocks the worker's loop.

Heartbeats leave from the loop. A coroutine that sleeps or computes without awaiting holds them up, and with them every
other job of this worker: past a lease, their leases are lost. It cannot be interrupted; it can be named.
"""

import asyncio
import time

from holdfast.observe.logs import get_logger
from holdfast.worker.executors.asyncio_tasks import TaskExecutor

_TICK_S = 0.25
#: A pause that a busy machine does not explain.
BLOCKED_S = 1.0
_NAMED_MAX = 20


async def watch_loop(tasks: TaskExecutor) -> None:
    """Warns, for ever, when the loop has stood still."""
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
                message="an async handler did not await; let it be an ordinary function, or await a thread",
            )
