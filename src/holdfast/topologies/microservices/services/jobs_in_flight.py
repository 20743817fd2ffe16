"""Jobs between two steps of this process, so that the sweep does not treat them as lost.

A job that was dequeued and is not RUNNING yet, or that went back to QUEUED and is not enqueued yet, is rightly in no
queue for a moment. The sweep watches this table while it works, and skips the jobs that it has seen here.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager

from holdfast.proto import taskqueue_internal_pb2 as pb


class JobsInFlight:
    """Jobs between two steps of this process, and dequeues without a reply yet."""

    def __init__(self) -> None:
        self._jobs: Counter[str] = Counter()
        self._dequeues: set[asyncio.Future[pb.DequeueJobResponse]] = set()
        self._watchers: list[set[str]] = []

    @contextmanager
    def holding(self, job_id: str) -> Iterator[None]:
        """Marks the job as in flight inside this block."""
        self._jobs[job_id] += 1
        for seen in self._watchers:
            seen.add(job_id)
        try:
            yield
        finally:
            self._jobs[job_id] -= 1
            if not self._jobs[job_id]:
                del self._jobs[job_id]

    async def dequeue(self, call: Awaitable[pb.DequeueJobResponse]) -> pb.DequeueJobResponse:
        """Waits for a dequeue; every watcher sees its job before the caller does."""
        task = asyncio.ensure_future(call)
        self._dequeues.add(task)
        try:
            found = await task
            for seen in self._watchers:
                seen.add(found.job_id)
            return found
        finally:
            self._dequeues.discard(task)

    @contextmanager
    def watch(self) -> Iterator[set[str]]:
        """Yields the set of all jobs that were in flight since the block began; it grows meanwhile."""
        seen = set(self._jobs)
        self._watchers.append(seen)
        try:
            yield seen
        finally:
            # By identity: two sets may be equal.
            self._watchers = [other for other in self._watchers if other is not seen]

    async def dequeues_answered(self) -> None:
        """Waits until every dequeue that is in flight now has a reply or has failed."""
        waiting = set(self._dequeues)
        if waiting:
            await asyncio.wait(waiting)
            await asyncio.sleep(0)  # lets the callers of `dequeue` continue first
