"""Notices a handler that blocks the worker's loop.

Heartbeats leave from the loop. A coroutine that sleeps or computes without awaiting holds them up, and with them every
other job of this worker: past a lease, their leases are lost. It cannot be interrupted; it can be named.
"""

import asyncio
import time
from collections.abc import Callable

import structlog

_TICK_S = 0.25
#: A pause that a busy machine does not explain.
BLOCKED_S = 1.0


async def watch_loop(job_ids: Callable[[], list[str]]) -> None:
    """Warns, for ever, when the loop has stood still."""
    while True:
        before, began_s = job_ids(), time.monotonic()
        await asyncio.sleep(_TICK_S)
        late_s = time.monotonic() - began_s - _TICK_S
        if late_s > BLOCKED_S and before:
            structlog.get_logger().warning(
                "loop_blocked",
                blocked_ms=round(late_s * 1_000),
                job_ids=before[:20],
                message="an async handler did not await; let it be an ordinary function, or await a thread",
            )
