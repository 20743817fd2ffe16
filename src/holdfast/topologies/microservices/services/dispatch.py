"""Handing out work: DequeueJob, the guarded move to RUNNING, GetJobRecord.

A dequeue takes the job out of the queue for good, so whatever happens after it must be made good here or be found
later:

- The dequeue is not answered: the job is in no queue, and nobody knows which it was. The sweep begins with the oldest.
- The guard is lost: the record is read, and a job that is still QUEUED is enqueued once more (the rescue).
- The move is not answered: the job may run under a token that nobody knows. It is a stray; until it is known what
  became of it, nothing else is dequeued. If this process dies, the round and the sweep find the same.
- The record cannot be read, or the worker no longer waits for the answer: the lease goes back, and spends nothing.
- A job that should stop is not handed out, but ended as canceled: after an accepted cancel of a queued job it never
  runs.
"""

from collections.abc import Callable

from holdfast import limits
from holdfast.core.lifecycle import QUEUED, RUNNING, name
from holdfast.core.model import SIM_TYPE, Now
from holdfast.errors import HoldfastError, NotFoundError, UnavailableError
from holdfast.observe.logs import get_logger
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto.enums import job_status
from holdfast.server.grpc.work_service import fetch_hint_ms
from holdfast.topologies.microservices.backend.owner_clients import Owners
from holdfast.topologies.microservices.services.jobs_in_flight import Underway
from holdfast.topologies.microservices.services.lease_table import NOBODY, NOT_RUNNING, HeldJob, LeaseTable
from holdfast.topologies.microservices.services.outcomes import ACTOR, Settler

#: Dequeued jobs that one fetch may find moved by others before it asks its worker to come back.
_LOST_GUARDS_MAX = 8


def wanted_of(request: pb.FetchWorkRequest) -> pb.Wanted:
    """What a worker can run; one that knows only the frozen fields runs simulated work."""
    return request.wanted if request.HasField("wanted") else pb.Wanted(routes=[SIM_TYPE])


def nothing(hint_ms: int = limits.FETCH_RETRY_MS_DEFAULT) -> pb.FetchWorkResponse:
    """The answer to an idle worker: when to ask again."""
    return pb.FetchWorkResponse(retry_after_ms=fetch_hint_ms(hint_ms))


class JobDispatcher:
    """One job at a time, to whoever asks. `on_empty` hears of every dequeue that brought nothing."""

    def __init__(
        self,
        owners: Owners,
        table: LeaseTable,
        settler: Settler,
        underway: Underway,
        now: Callable[[], Now],
        on_empty: Callable[[], None],
    ) -> None:
        self._owners = owners
        self._table = table
        self._settler = settler
        self._underway = underway
        self._now = now
        self._on_empty = on_empty
        #: Jobs that were dequeued, and whose move was not answered.
        self.strays: set[str] = set()
        #: A dequeue was not answered: whichever job was next may be in no queue.
        self.is_in_doubt = False

    async def fetch(self, worker: str, wanted: pb.Wanted) -> pb.FetchWorkResponse:
        """One job that is now the worker's, or when to ask again."""
        if not wanted.routes:
            return nothing()
        await self._check_strays()
        request = pb.DequeueJobRequest(worker_id=worker, wanted=wanted)
        for _ in range(_LOST_GUARDS_MAX):
            found = await self._dequeue(request)
            if not found.found:
                self._on_empty()
                return nothing()
            with self._underway.holding(found.job_id):
                work = await self._hand_out(found.job_id, worker)
            if work is not None:
                return work
        return nothing(limits.FETCH_RETRY_MS_MIN)

    async def _dequeue(self, request: pb.DequeueJobRequest) -> pb.DequeueJobResponse:
        try:
            return await self._underway.dequeue(self._owners.queue.dequeue(request))
        except HoldfastError:
            self.is_in_doubt = True
            self._on_empty()
            raise

    async def _check_strays(self) -> None:
        """Nothing is dequeued while it is not known what became of the last: an outage would empty the queue."""
        for job_id in list(self.strays):
            await self.look_after(job_id)
        if self.strays:
            raise UnavailableError("the services that own jobs do not answer; try again", reason="SERVICE_UNAVAILABLE")

    async def _hand_out(self, job_id: str, worker: str) -> pb.FetchWorkResponse | None:
        lease = await self.take(job_id, worker)
        if lease is None:
            return None
        try:
            record = await self._settler.record(job_id, without_payload=False)
        except HoldfastError:
            self.give_back(lease)
            raise
        if record is None or record.token != lease.token:  # taken away and given to another meanwhile
            self._table.drop(lease)
            return None
        if record.summary.cancel_requested:
            await self._end_canceled(lease, record)
            return None
        return pb.FetchWorkResponse(
            assigned=True,
            job_id=job_id,
            spec=record.spec,
            token=lease.token,
            options=record.options,
            attempt=record.failures + record.losses + 1,
        )

    async def take(self, job_id: str, worker: str) -> HeldJob | None:
        """Moves a job to RUNNING for this worker; None if it was not QUEUED, and then it was seen to."""
        try:
            moved = await self._owners.job.move(
                pb.TransitionJobStatusRequest(
                    job_id=job_id,
                    expected_from_status=job_status(QUEUED),
                    to_status=job_status(RUNNING),
                    actor=ACTOR,
                    worker_id=worker,
                )
            )
        except NotFoundError:
            self._log_lost_guard(job_id, worker, "")
            return None
        except HoldfastError:
            self.strays.add(job_id)
            raise
        if moved.applied:
            lease = self._table.grant(job_id, moved.token, worker, self._now())
            return lease if lease.token == moved.token else None  # None: overtaken by a later grant
        self._log_lost_guard(job_id, worker, name(moved.current_status))
        await self._rescue(job_id, worker)
        return None

    async def _rescue(self, job_id: str, worker: str) -> None:
        """Enqueues a job once if it is QUEUED although its move was refused; leaves any other alone."""
        try:
            record = await self._settler.record(job_id)
            if record is None or record.summary.status != job_status(QUEUED):
                return
            await self._settler.enqueue(record)
        except HoldfastError:
            self.strays.add(job_id)
            raise
        get_logger().warning(
            "rescued",
            method="FetchWork",
            job_id=job_id,
            worker_id=worker,
            message="still QUEUED after a lost guard; enqueued again",
        )

    def _log_lost_guard(self, job_id: str, worker: str, current: str) -> None:
        get_logger().info(
            "guard_lost",
            method="FetchWork",
            job_id=job_id,
            worker_id=worker,
            expected_status=name(QUEUED),
            current_status=current,
            message="the job was moved or deleted before it could be handed out",
        )

    async def _end_canceled(self, lease: HeldJob, record: pb.GetJobRecordResponse) -> None:
        try:
            await self._settler.end_canceled(lease, record)
        except HoldfastError:
            self.give_back(lease)  # which ends it as canceled, too
            raise

    def give_back(self, lease: HeldJob) -> None:
        """Nobody will run it under this lease."""
        self._table.judge(lease, NOT_RUNNING)

    def undelivered(self, answer: pb.FetchWorkResponse) -> None:
        """The worker stopped waiting before this answer was there."""
        lease = self._table.get(answer.job_id)
        if answer.assigned and lease is not None and lease.token == answer.token:
            self.give_back(lease)

    # -- strays

    async def look_after(self, job_id: str) -> None:
        """Finds out what became of a stray, and sees to it; it stays one while that cannot be known."""
        try:
            await self._find(job_id)
        except HoldfastError as error:
            if error.retryable:
                return
            get_logger().error("stray_left", job_id=job_id, reason=error.reason, message=error.message)
        self.strays.discard(job_id)

    async def _find(self, job_id: str) -> None:
        with self._underway.holding(job_id):
            record = await self._settler.record(job_id)
            if record is None:
                return
            if record.summary.status == job_status(QUEUED):
                await self._settler.enqueue(record)
            elif record.summary.status == job_status(RUNNING):
                lease = self._table.adopt(record, self._now())
                if lease.token == record.token and not lease.is_confirmed:
                    self.give_back(lease)

    # -- cancels

    async def end_queued(self, record: pb.GetJobRecordResponse) -> None:
        """Ends a job that waits although it should stop: it is taken like any other, and not handed out."""
        job_id = record.summary.job_id
        with self._underway.holding(job_id):
            lease = await self.take(job_id, NOBODY)
            if lease is not None:
                await self._end_canceled(lease, record)
                await self._owners.queue.remove(pb.RemoveJobIfPresentRequest(job_id=job_id))
