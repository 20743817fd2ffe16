"""The round: what the owner of the records says is RUNNING, compared with the leases that are known here.

Unknown ones are adopted with the whole time of a lease: after a restart, and when an answer was lost. Known ones learn
whether they should stop. Leases whose jobs no longer run are forgotten.
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
from holdfast.topologies.microservices.services.lease_table import NOBODY, NOT_RUNNING, LeaseTable


class Rounds:
    """One walk at a time; whoever needs to know the state of now waits for one that begins after it asked."""

    def __init__(self, owners: Owners, table: LeaseTable, now: Callable[[], Now]) -> None:
        self._owners = owners
        self._table = table
        self._now = now
        self._walking: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None
        #: Whether one call is enough for all that runs, as far as is known.
        self.is_short = True
        self.is_walked = False

    async def fresh(self) -> None:
        """A round that began after this was called is over; raises what kept it from its end."""
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
        """What is under way."""
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
        if lease.worker == NOBODY:  # taken to be ended, and whoever took it did not get so far
            self._table.judge(lease, NOT_RUNNING)


def running_records(cursor: str) -> pb.ListJobRecordsRequest:
    """One page of all that runs."""
    return pb.ListJobRecordsRequest(
        status_filter=[job_status(RUNNING)],
        page=public_pb.PageRequest(page_size=limits.PAGE_SIZE_MAX),
        sort=public_pb.CREATED_AT_ASC,
        search=pb.JobSearch(cursor=cursor),
    )


def _heard(task: asyncio.Task[None]) -> None:
    """Whoever waited was told; a round that nobody waits for may fail in silence."""
    if not task.cancelled():
        task.exception()
