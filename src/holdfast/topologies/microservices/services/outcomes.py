"""Settles running jobs: a job ends, or goes back to the queue.

This process may die after any step, so the order of the steps leaves a state that can be repaired:

- An end is StoreResult, then the guarded move. An envelope without its move is no end yet: the report is repeated, or
  the job runs again, and the move goes to the status of the first envelope in any case.
- A return is the guarded move, then EnqueueJob. The sweep finds a job that is QUEUED in no queue.
- Both moves name the token: of two moves of the same attempt, the job service refuses one.
"""

import hashlib
from collections.abc import Awaitable, Callable

from holdfast.core.events import Revocation
from holdfast.core.lifecycle import CANCELED, FAILED, QUEUED, RUNNING, TERMINAL, name
from holdfast.core.model import Now, Result, Template
from holdfast.core.outcomes import LOSSES_SPENT, revocation_of
from holdfast.errors import HoldfastError, InternalError, NotFoundError
from holdfast.observe.logs import get_logger
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto.enums import job_status
from holdfast.server.grpc.internal_messages import enqueue_again, template_of
from holdfast.topologies.microservices.backend.owner_clients import Owners
from holdfast.topologies.microservices.services.jobs_in_flight import JobsInFlight
from holdfast.topologies.microservices.services.lease_table import RETURNED, HeldJob, LeaseTable

ACTOR = "coordinator"
#: Pause before the next try to settle a lease that is over, while one of the owners is unavailable.
RETRY_MS = 500


class TriedRecord:
    """The fields of a job's record that the rules for outcomes use."""

    __slots__ = (
        "cancel_reason",
        "cancel_requested",
        "failures",
        "grants",
        "id",
        "losses",
        "template",
        "token",
    )

    def __init__(self, record: pb.GetJobRecordResponse) -> None:
        self.id: str = record.summary.job_id
        self.template: Template = template_of(record.spec, record.options)
        self.token: int = record.token
        self.grants: int = record.grants
        self.failures: int = record.failures
        self.losses: int = record.losses
        self.cancel_requested: bool = record.summary.cancel_requested
        self.cancel_reason: str = record.cancel_reason


class OutcomeWriter:
    """Ends and returns jobs, for reports, lost leases and cancels."""

    def __init__(self, owners: Owners, table: LeaseTable, in_flight: JobsInFlight, now: Callable[[], Now]) -> None:
        self._owners = owners
        self._table = table
        self._in_flight = in_flight
        self._now = now

    async def record(self, job_id: str, *, without_payload: bool = True) -> pb.GetJobRecordResponse | None:
        """Returns the record of a job; None if there is no such job."""
        try:
            return await self._owners.job.record(pb.GetJobRecordRequest(job_id=job_id, without_payload=without_payload))
        except NotFoundError:
            return None

    async def enqueue(self, record: pb.GetJobRecordResponse) -> bool:
        """Enqueues a job; returns whether it was in the queue already."""
        return (await self._owners.queue.enqueue(enqueue_again(record))).existing

    # -- ending

    async def end(self, lease: HeldJob, result: Result, spends: pb.Spends = pb.SPENDS_NOTHING) -> str:
        """Ends a running job; returns the reason if it could not, or an empty string."""
        output = bytes(result.output)
        stored = await self._owners.result.store(
            pb.StoreResultRequest(
                job_id=lease.job_id,
                terminal_status=job_status(result.state),
                runtime_ms=result.runtime_ms,
                output_summary=result.summary,
                output_bytes=output,
                checksum=hashlib.sha256(output).hexdigest(),
            )
        )
        state = int(stored.current_terminal_status) if stored.already_exists else result.state
        if state not in TERMINAL:
            raise InternalError(f"expected a stored result in a terminal state, got {state}")
        reason = result.summary if state == CANCELED else result.failure_reason
        if state != result.state:
            get_logger().warning(
                "stored_result_stands",
                job_id=lease.job_id,
                worker_id=lease.worker,
                expected_status=name(result.state),
                current_status=name(state),
                message="another result was stored before; the first one counts",
            )
            reason = "an end that was stored before"
        moved = await self._move(lease, state, reason=reason, spends=spends)
        self._table.drop(lease)
        return "" if moved.applied else self._lost_move(lease, state, moved)

    def _lost_move(self, lease: HeldJob, state: int, moved: pb.TransitionJobStatusResponse) -> str:
        current = int(moved.current_status)
        if current == state:
            return ""  # moved before; the reply was lost
        get_logger().info(
            "terminal_race" if current in TERMINAL else "guard_lost",
            job_id=lease.job_id,
            worker_id=lease.worker,
            token=lease.token,
            expected_status=name(state),
            current_status=name(current),
            message="another caller moved the job first; nothing was changed",
        )
        return "ALREADY_FINISHED" if current in TERMINAL else "STALE_TOKEN"

    async def _move(
        self,
        lease: HeldJob,
        state: int,
        *,
        reason: str,
        not_before_ms: int = 0,
        spends: pb.Spends = pb.SPENDS_NOTHING,
    ) -> pb.TransitionJobStatusResponse:
        return await self._owners.job.move(
            pb.TransitionJobStatusRequest(
                job_id=lease.job_id,
                expected_from_status=job_status(RUNNING),
                to_status=job_status(state),
                actor=ACTOR,
                reason=reason,
                token=lease.token,
                not_before_ms=not_before_ms,
                spends=spends,
            )
        )

    # -- returns to the queue

    async def try_again(self, lease: HeldJob, result: Result) -> str:
        """Queues a failed job for its retry; returns the reason if it could not, or an empty string."""
        with self._in_flight.holding(lease.job_id):
            moved = await self._move(
                lease,
                QUEUED,
                reason=result.failure_reason or result.summary,
                not_before_ms=result.not_before_ms,
                spends=pb.SPENDS_FAILURE,
            )
            # QUEUED although not applied: moved before, and the reply was lost; no other task may end this lease.
            if not moved.applied and moved.current_status != job_status(QUEUED):
                self._table.drop(lease)
                return self._lost_move(lease, QUEUED, moved)
            # The failure counts from here on. If the queue service is unavailable, the job is enqueued later.
            self._table.judge(lease, RETURNED)
            await self._guarded(lease, self._enqueue_returned(lease))
        return ""

    async def take_back(self, lease: HeldJob) -> None:
        """Settles the job of a lease that is over; tried again later if an owner is unavailable."""
        async with lease.lock:
            if lease in self._table:
                with self._in_flight.holding(lease.job_id):
                    await self._guarded(lease, self._settle(lease))

    async def _guarded(self, lease: HeldJob, step: Awaitable[None]) -> None:
        try:
            await step
        except HoldfastError as error:
            lease.retry_ms = self._now().served_ms + RETRY_MS
            get_logger().warning(
                "lease_waits",
                job_id=lease.job_id,
                worker_id=lease.worker,
                reason=error.reason,
                message=f"its job cannot be settled now: {error.message}",
            )

    async def _settle(self, lease: HeldJob) -> None:
        assert lease.verdict is not None
        record = await self.record(lease.job_id)
        if record is None or record.token != lease.token or record.summary.status != job_status(RUNNING):
            await self._enqueue_returned(lease, record)
            return
        tried = TriedRecord(record)
        revocation = revocation_of(tried, is_spent=lease.verdict.is_spent)
        spends = pb.SPENDS_LOSS if revocation.is_spent else pb.SPENDS_NOTHING
        if revocation.state == QUEUED:
            moved = await self._move(lease, QUEUED, reason=lease.verdict.reason, spends=spends)
            if not moved.applied:
                self._lost_move(lease, QUEUED, moved)
            await self._enqueue_returned(lease)
        else:
            await self.end(lease, _ended_by(lease, tried, revocation), spends)
        get_logger().info(
            "lease_lost",
            job_id=lease.job_id,
            worker_id=lease.worker,
            token=lease.token,
            reason=lease.verdict.reason,
            current_status=name(revocation.state),
            is_spent=revocation.is_spent,
        )

    async def _enqueue_returned(self, lease: HeldJob, record: pb.GetJobRecordResponse | None = None) -> None:
        """Completes a return: enqueues the job if it is QUEUED since this lease."""
        record = record or await self.record(lease.job_id)
        if record is not None and record.token == lease.token and record.summary.status == job_status(QUEUED):
            await self.enqueue(record)
        self._table.drop(lease)

    # -- canceling

    async def end_canceled(self, lease: HeldJob, record: pb.GetJobRecordResponse) -> None:
        """Ends a job as CANCELED that has a cancel request and was not handed out."""
        async with lease.lock:
            if lease in self._table:
                await self.end(lease, Result(0, CANCELED, summary=record.cancel_reason))


def _ended_by(lease: HeldJob, tried: TriedRecord, revocation: Revocation) -> Result:
    """Returns the result of a job that ends with this lost lease."""
    assert lease.verdict is not None
    attempts = tried.failures + tried.losses + revocation.is_spent
    summary = f"its lease ended ({lease.verdict.reason}) after {attempts} attempts"
    if revocation.state == CANCELED:
        summary = tried.cancel_reason or summary
    reason = LOSSES_SPENT if revocation.state == FAILED else ""
    return Result(0, revocation.state, summary=summary, failure_reason=reason)
