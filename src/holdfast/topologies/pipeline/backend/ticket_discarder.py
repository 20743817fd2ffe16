"""Deletes tickets from their queue processes, or puts them back: in the background and in batches.

A ticket that was not deleted becomes visible again after its timeout, but its row is already started then.
"""

import asyncio
from collections.abc import Collection

from holdfast.errors import HoldfastError
from holdfast.topologies.pipeline.backend.http_client import RoleConnections
from holdfast.topologies.pipeline.backend.messages import TicketIds

_DEADLINE_S = 1.0


class TicketDiscarder:
    """The tickets to delete or put back, by queue process. At most one request to each is in progress."""

    def __init__(self, lines: RoleConnections, path: str, worker: str = "") -> None:
        """With a worker's name, only tickets that this worker has are affected."""
        self._lines = lines
        self._path = path
        self._worker = worker
        self._ids: dict[str, list[str]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def add(self, address: str, job_ids: Collection[str]) -> None:
        """Adds tickets to the next request."""
        if job_ids:
            self._ids.setdefault(address, []).extend(job_ids)
            if address not in self._tasks:
                self._tasks[address] = asyncio.get_running_loop().create_task(self._send(address))

    async def flush(self) -> None:
        """Waits until all requests have succeeded or failed."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks.values()))

    async def _send(self, address: str) -> None:
        try:
            while job_ids := self._ids.pop(address, None):
                named = TicketIds(job_ids=job_ids, worker_id=self._worker)
                await self._lines.tell(address, self._path, named, kind=dict[str, int], deadline_s=_DEADLINE_S)
        except HoldfastError:
            self._ids.pop(address, None)
        finally:
            del self._tasks[address]
