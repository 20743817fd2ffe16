"""Hands out work: DequeueJob, the guarded move to RUNNING, GetJobRecord.

A dequeue removes the job from the queue, so every failure after it must be repaired here or be found later:

- The dequeue has no reply: the job is in no queue, and its id is unknown. The sweep starts with the oldest jobs.
- The guard is lost: the record is read, and a job that is still QUEUED is enqueued once more (the rescue).
- The move has no reply: the job may run under an unknown token. It is a stray; nothing else is dequeued until its state
  is known. If this process dies, the round and the sweep find it.
- The record cannot be read, or the worker no longer waits for the reply: the lease is returned and does not count as a
  loss.
- A job with a cancel request is not handed out, but ended as CANCELED: after an accepted cancel a queued job never
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
from holdfast.topologies.microservices.services.jobs_in_flight import JobsInFlight
from holdfast.topologies.microservices.services.lease_table import NO_WORKER, NOT_RUNNING, HeldJob, LeaseTable
from holdfast.topologies.microservices.services.outcomes import ACTOR, OutcomeWriter

#: A fetch that has dequeued this many already moved jobs tells its worker to fetch again.
_LOST_GUARDS_MAX = 8


def wanted_of(request: pb.FetchWorkRequest) -> pb.Wanted:
    """Returns the routes and queues of a worker; one that sends only the frozen fields runs simulated work."""
    return request.wanted if request.HasField("wanted") else pb.Wanted(routes=[SIM_TYPE])


def nothing(hint_ms: int = limits.FETCH_RETRY_MS_DEFAULT) -> pb.FetchWorkResponse:
    """Returns the reply to an idle worker: when to fetch again."""
    return pb.FetchWorkResponse(retry_after_ms=fetch_hint_ms(hint_ms))


class JobDispatcher:
    """Grants one job per fetch. `on_empty` is called after every dequeue that returned no job."""

    def __init__(
        self,
        owners: Owners,
        table: LeaseTable,
        outcome_writer: OutcomeWriter,
        in_flight: JobsInFlight,
        now: Callable[[], Now],
        on_empty: Callable[[], None],
    ) -> None:
        self._owners = owners
        self._table = table
        self._outcome_writer = outcome_writer
        self._in_flight = in_flight
        self._now = now
        self._on_empty = on_empty
        #: Dequeued jobs whose move had no reply.
        self.strays: set[str] = set()
        #: A dequeue had no reply: the next job of the queue may be in no queue now.
        self.is_in_doubt = False

    async def fetch(self, worker: str, wanted: pb.Wanted) -> pb.FetchWorkResponse:
        """Grants one job to the worker, or returns when to fetch again."""
        if not wanted.routes:
            return nothing()
        await self._check_strays()
        request = pb.DequeueJobRequest(worker_id=worker, wanted=wanted)
        for _ in range(_LOST_GUARDS_MAX):
            found = await self._dequeue(request)
            if not found.found:
                self._on_empty()
                return nothing()
            with self._in_flight.holding(found.job_id):
                work = await self._hand_out(found.job_id, worker)
            if work is not None:
                return work
        return nothing(limits.FETCH_RETRY_MS_MIN)

    async def _dequeue(self, request: pb.DequeueJobRequest) -> pb.DequeueJobResponse:
        try:
            return await self._in_flight.dequeue(self._owners.queue.dequeue(request))
        except HoldfastError:
            self.is_in_doubt = True
            self._on_empty()
            raise

    async def _check_strays(self) -> None:
        """Resolves the strays before anything else is dequeued; otherwise an outage would empty the queue."""
        for job_id in list(self.strays):
            await self.look_after(job_id)
        if self.strays:
            raise UnavailableError("the services that own jobs do not answer; try again", reason="SERVICE_UNAVAILABLE")

    async def _hand_out(self, job_id: str, worker: str) -> pb.FetchWorkResponse | None:
        lease = await self.take(job_id, worker)
        if lease is None:
            return None
        try:
            record = await self._outcome_writer.record(job_id, without_payload=False)
        except HoldfastError:
            self.give_back(lease)
            raise
        if record is None or record.token != lease.token:  # revoked and granted again meanwhile
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
        """Moves a job to RUNNING for this worker; None if it was not QUEUED, and then it was rescued if needed."""
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
        """Enqueues a job once if it is still QUEUED although its move was refused; leaves any other alone."""
        try:
            record = await self._outcome_writer.record(job_id)
            if record is None or record.summary.status != job_status(QUEUED):
                return
            await self._outcome_writer.enqueue(record)
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
            await self._outcome_writer.end_canceled(lease, record)
        except HoldfastError:
            self.give_back(lease)  # which also ends it as CANCELED
            raise

    def give_back(self, lease: HeldJob) -> None:
        """Returns a lease under which the job will not run."""
        self._table.judge(lease, NOT_RUNNING)

    def undelivered(self, answer: pb.FetchWorkResponse) -> None:
        """Returns the lease of a reply that its worker no longer waits for."""
        lease = self._table.get(answer.job_id)
        if answer.assigned and lease is not None and lease.token == answer.token:
            self.give_back(lease)

    # -- strays

    async def look_after(self, job_id: str) -> None:
        """Resolves a stray by its record; it stays a stray while its owner does not answer."""
        try:
            await self._find(job_id)
        except HoldfastError as error:
            if error.retryable:
                return
            get_logger().error("stray_left", job_id=job_id, reason=error.reason, message=error.message)
        self.strays.discard(job_id)

    async def _find(self, job_id: str) -> None:
        with self._in_flight.holding(job_id):
            record = await self._outcome_writer.record(job_id)
            if record is None:
                return
            if record.summary.status == job_status(QUEUED):
                await self._outcome_writer.enqueue(record)
            elif record.summary.status == job_status(RUNNING):
                lease = self._table.adopt(record, self._now())
                if lease.token == record.token and not lease.is_confirmed:
                    self.give_back(lease)

    # -- cancels

    async def end_queued(self, record: pb.GetJobRecordResponse) -> None:
        """Ends a waiting job with a cancel request: takes it like any other job, but does not hand it out."""
        job_id = record.summary.job_id
        with self._in_flight.holding(job_id):
            lease = await self.take(job_id, NO_WORKER)
            if lease is not None:
                await self._end_canceled(lease, record)
                await self._owners.queue.remove(pb.RemoveJobIfPresentRequest(job_id=job_id))
