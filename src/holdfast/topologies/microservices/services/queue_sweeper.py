"""The sweep: enqueues jobs again that are QUEUED and due, but in no queue.

It walks the QUEUED records, oldest first, in bounded parts, and enqueues those that have existed for a while. That
changes nothing for a job that already waits, and the reply shows whether it did. Only repairs are logged. The same walk
refills a queue service that has lost its state. A waiting job with a cancel request is ended.

Invariants: one part reads at most `_PAGES_MAX` pages, and stops after the first page with due jobs; a walk that
repaired nothing is not started again before its time, however often a dequeue finds no job. A job that is in flight in
this process is skipped.
"""

import asyncio

from holdfast import limits
from holdfast.core.lifecycle import QUEUED
from holdfast.core.model import Now
from holdfast.errors import InvalidArgumentError
from holdfast.observe.logs import get_logger
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.proto.enums import job_status
from holdfast.topologies.microservices.backend.owner_clients import Owners
from holdfast.topologies.microservices.services.dispatch import JobDispatcher
from holdfast.topologies.microservices.services.jobs_in_flight import JobsInFlight
from holdfast.topologies.microservices.services.outcomes import OutcomeWriter

#: Records younger than this may be on their way to the queue.
SETTLED_MS = 2_000
#: Maximum number of pages in one part, if no job on them is due.
_PAGES_MAX = 5
#: Maximum number of concurrent calls to the queue service.
_TOGETHER = 16


class Sweeper:
    """Walks the QUEUED records, in parts."""

    def __init__(
        self,
        owners: Owners,
        outcome_writer: OutcomeWriter,
        dispatcher: JobDispatcher,
        in_flight: JobsInFlight,
    ) -> None:
        self._owners = owners
        self._outcome_writer = outcome_writer
        self._dispatcher = dispatcher
        self._in_flight = in_flight
        #: The cursor of the walk.
        self._cursor = ""

    async def go(self) -> bool:
        """Runs one part of the walk; returns whether it repaired a job, so that the next part should follow at once."""
        if self._dispatcher.is_in_doubt:  # the missing job was next in the queue, so it is among the oldest
            self._dispatcher.is_in_doubt = False
            self._cursor = ""
        with self._in_flight.watch() as seen:
            for _ in range(_PAGES_MAX):
                page = await self._page()
                settled = [record for record in page.records if _has_settled(record, record.summary.created_at_ms)]
                due = [record for record in settled if _has_settled(record, record.options.not_before_ms)]
                repaired = await self._see_to(due, seen)
                # Records are sorted by age: behind one that is too young, all are.
                self._cursor = page.next_cursor if len(settled) == len(page.records) else ""
                if due or not self._cursor:
                    return repaired > 0
        return False

    async def _page(self) -> pb.ListJobRecordsResponse:
        try:
            return await self._owners.job.records(_queued_records(self._cursor))
        except InvalidArgumentError:  # the owner no longer knows the cursor
            self._cursor = ""
            raise

    async def _see_to(self, records: list[pb.GetJobRecordResponse], seen: set[str]) -> int:
        repaired = 0
        for start in range(0, len(records), _TOGETHER):
            part = [record for record in records[start : start + _TOGETHER] if record.summary.job_id not in seen]
            done = await asyncio.gather(*(self._see_to_one(record, seen) for record in part), return_exceptions=True)
            for outcome in done:
                if isinstance(outcome, BaseException):
                    raise outcome
                repaired += outcome
        return repaired

    async def _see_to_one(self, record: pb.GetJobRecordResponse, seen: set[str]) -> bool:
        if record.summary.cancel_requested:
            await self._dispatcher.end_queued(record)
            return True
        if await self._outcome_writer.enqueue(record):
            return False
        # It was in no queue. If it was dequeued since the listing, that was correct, and the new entry is removed.
        await self._in_flight.dequeues_answered()
        job_id = record.summary.job_id
        if job_id in seen:
            await self._owners.queue.remove(pb.RemoveJobIfPresentRequest(job_id=job_id))
            return False
        get_logger().warning(
            "anomaly",
            method="sweep",
            job_id=job_id,
            reason="QUEUED_IN_NO_QUEUE",
            message="the job was QUEUED but in no queue; it was enqueued again",
        )
        return True


def _has_settled(record: pb.GetJobRecordResponse, at_ms: int) -> bool:
    """Whether a time of the record is long enough ago, by the clock of the job service, which set it."""
    return at_ms + SETTLED_MS <= record.now_ms


def _queued_records(cursor: str) -> pb.ListJobRecordsRequest:
    return pb.ListJobRecordsRequest(
        status_filter=[job_status(QUEUED)],
        page=public_pb.PageRequest(page_size=limits.PAGE_SIZE_MAX),
        sort=public_pb.CREATED_AT_ASC,
        search=pb.JobSearch(cursor=cursor),
    )


class SweepTimer:
    """Decides when to sweep: at an interval, sooner after an empty dequeue, and at once after a repair."""

    def __init__(self, heartbeat_ms: int) -> None:
        self._soon_ms = heartbeat_ms
        self._calm_ms = 5 * heartbeat_ms
        self._went_ms: int | None = None
        self._is_hinted = False
        self._is_urgent = False

    def hint(self) -> None:
        """Notes that a dequeue found no job."""
        self._is_hinted = True

    def is_due(self, now: Now) -> bool:
        """Whether to sweep now."""
        if self._went_ms is None or self._is_urgent:
            return True
        return now.served_ms - self._went_ms >= (self._soon_ms if self._is_hinted else self._calm_ms)

    def went(self, now: Now, *, repaired: bool) -> None:
        """Notes that a part of the sweep has ended."""
        self._went_ms = now.served_ms
        self._is_urgent = repaired
        self._is_hinted = False
