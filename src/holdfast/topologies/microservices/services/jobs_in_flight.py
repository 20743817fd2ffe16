"""Which jobs are between two steps of this process, so that nobody takes them for lost.

A job that was dequeued and is not RUNNING yet, or that went back to QUEUED and is not enqueued yet, is in no queue for
a moment, and rightly so. Whoever repairs such jobs watches while it works, and leaves those alone that were seen here.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager

from holdfast.proto import taskqueue_internal_pb2 as pb


class Underway:
    """Jobs in the hands of this process, and dequeues whose answer is not there yet."""

    def __init__(self) -> None:
        self._jobs: Counter[str] = Counter()
        self._dequeues: set[asyncio.Future[pb.DequeueJobResponse]] = set()
        self._watchers: list[set[str]] = []

    @contextmanager
    def holding(self, job_id: str) -> Iterator[None]:
        """The job is in our hands inside this block."""
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
        """The answer; what it brings is seen by every watcher before anybody else has it."""
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
        """Every job that is or was in our hands since the block began; grows meanwhile."""
        seen = set(self._jobs)
        self._watchers.append(seen)
        try:
            yield seen
        finally:
            # By identity: two watchers may have seen the same.
            self._watchers = [other for other in self._watchers if other is not seen]

    async def dequeues_answered(self) -> None:
        """Every dequeue that was on its way when this was called has been answered, or has failed."""
        waiting = set(self._dequeues)
        if waiting:
            await asyncio.wait(waiting)
            await asyncio.sleep(0)  # whoever waited for them has taken what they brought
