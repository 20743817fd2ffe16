"""Tickets that are of no use any more, deleted from their queue processes: soon, together, and nobody waits for it.

One that is not deleted comes back by its own timeout, and finds its row taken.
"""

import asyncio
from collections.abc import Collection

from holdfast.errors import HoldfastError
from holdfast.topologies.pipeline.backend.http_client import RoleConnections
from holdfast.topologies.pipeline.backend.messages import Named

_DEADLINE_S = 1.0


class Discarding:
    """What is to be deleted or put back, by queue process. At most one message to each is under way."""

    def __init__(self, lines: RoleConnections, path: str, worker: str = "") -> None:
        """With a worker's name, only what that worker has is meant."""
        self._lines = lines
        self._path = path
        self._worker = worker
        self._ids: dict[str, list[str]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def add(self, address: str, job_ids: Collection[str]) -> None:
        """These go out with the next message."""
        if job_ids:
            self._ids.setdefault(address, []).extend(job_ids)
            if address not in self._tasks:
                self._tasks[address] = asyncio.get_running_loop().create_task(self._send(address))

    async def flush(self) -> None:
        """Waits until everything was said, or could not be."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks.values()))

    async def _send(self, address: str) -> None:
        try:
            while job_ids := self._ids.pop(address, None):
                named = Named(job_ids=job_ids, worker_id=self._worker)
                await self._lines.tell(address, self._path, named, kind=dict[str, int], deadline_s=_DEADLINE_S)
        except HoldfastError:
            self._ids.pop(address, None)
        finally:
            del self._tasks[address]
