"""The round: compares the RUNNING records of the job service with the leases in the table.

Unknown leases are adopted with the full lease time: after a restart, and when a reply was lost. Known leases get their
cancel flag. Leases whose jobs no longer run are dropped.
"""

import asyncio
from collections.abc import Callable

from holdfast import limits
from holdfast.core.lifecycle import RUNNING
from holdfast.core.model import Now
from holdfast.observe.logs import get_logger
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.proto.enums import job_status
from holdfast.topologies.microservices.backend.owner_clients import Owners
from holdfast.topologies.microservices.services.lease_table import NO_WORKER, NOT_RUNNING, LeaseTable


class LeaseReconciler:
    """Runs one round at a time; a caller that needs the current state waits for a round that begins after its call."""

    def __init__(self, owners: Owners, table: LeaseTable, now: Callable[[], Now]) -> None:
        self._owners = owners
        self._table = table
        self._now = now
        self._walking: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None
        #: Whether the last round needed only one page.
        self.is_short = True
        self.is_walked = False

    async def fresh(self) -> None:
        """Waits for a round that begins after this call; raises its error."""
        await asyncio.shield(self._begin())

    def _begin(self) -> asyncio.Task[None]:
        if self._walking is None or self._walking.done():
            self._walking = asyncio.create_task(self._walk())
            self._walking.add_done_callback(_heard)
            return self._walking
        if self._next is None or self._next.done():
            self._next = asyncio.create_task(self._walk_after(self._walking))
            self._next.add_done_callback(_heard)
        return self._next

    async def _walk_after(self, before: asyncio.Task[None]) -> None:
        await asyncio.wait([before])
        self._walking, self._next = self._next, None
        await self._walk()

    def tasks(self) -> list[asyncio.Task[None]]:
        """Returns the rounds in progress."""
        return [task for task in (self._walking, self._next) if task is not None]

    async def _walk(self) -> None:
        began_ms = self._now().served_ms
        running: list[tuple[str, int]] = []
        request = running_records("")
        pages = 0
        while True:
            pages += 1
            page = await self._owners.job.records(request)
            for record in page.records:
                running.append((record.summary.job_id, record.token))
                self._adopt(record)
            if not page.next_cursor:
                break
            request = running_records(page.next_cursor)
        self._table.forget_ended(running, began_ms)
        self.is_short = pages == 1
        self.is_walked = True

    def _adopt(self, record: pb.GetJobRecordResponse) -> None:
        known = self._table.get(record.summary.job_id)
        lease = self._table.adopt(record, self._now())
        if lease is not known:
            get_logger().info(
                "lease_adopted", job_id=lease.job_id, worker_id=lease.worker, token=lease.token, method="round"
            )
        if lease.worker == NO_WORKER:  # taken by this service to be ended, which did not happen
            self._table.judge(lease, NOT_RUNNING)


def running_records(cursor: str) -> pb.ListJobRecordsRequest:
    """Returns the request for one page of all RUNNING records."""
    return pb.ListJobRecordsRequest(
        status_filter=[job_status(RUNNING)],
        page=public_pb.PageRequest(page_size=limits.PAGE_SIZE_MAX),
        sort=public_pb.CREATED_AT_ASC,
        search=pb.JobSearch(cursor=cursor),
    )


def _heard(task: asyncio.Task[None]) -> None:
    """Retrieves the exception so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
