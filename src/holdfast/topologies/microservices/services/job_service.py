"""The job service: the records of all jobs, their tokens and their budgets; the only place where a status changes.

It is created and used on the loop's thread. `callers` has authorized each call.

Invariants: a reply is sent, and its log line written, when the change is durable, even if the caller no longer waits; a
guard that does not hold is a reply, not an error; fields beyond the frozen ones have defaults.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from holdfast import limits
from holdfast.core.commands import Evict, Refusal
from holdfast.core.lifecycle import TERMINAL, State
from holdfast.core.model import NewJob
from holdfast.core.tasks import unknown_job
from holdfast.errors import InvalidArgumentError
from holdfast.ledger.job_ids import Mint, random_minter
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.proto.enums import job_status
from holdfast.server.grpc.internal_messages import submission_of
from holdfast.server.grpc.status import Context, answered
from holdfast.server.request_checks import checked_id, checked_name
from holdfast.topologies.microservices.services.environment import JobEnvironment, hashes_of
from holdfast.topologies.microservices.services.internal_server import ServiceServer
from holdfast.topologies.microservices.services.job_log import log_cancel_requested, log_created, log_deleted, log_moved
from holdfast.topologies.microservices.services.job_retention import RecordCleaner
from holdfast.topologies.microservices.services.job_search import JobListing
from holdfast.topologies.microservices.services.job_views import record_message
from holdfast.topologies.microservices.services.owner import OwnerDecision, StateOwner
from holdfast.topologies.microservices.services.roles import Host, OwnerService, Service, full_name, opened
from holdfast.topologies.microservices.state.record_events import (
    CreateReply,
    Move,
    MoveReply,
    RecordDecision,
    SpentBudget,
)
from holdfast.topologies.microservices.state.records import Records

RETENTION = Evict(limits.RETAIN_MS_DEFAULT, limits.RETAIN_JOBS_DEFAULT, limits.RETAIN_BYTES_DEFAULT)
#: Disk space that new jobs leave free, so that existing jobs can still change on a full disk.
_SPARE_BYTES = 4 << 20


class JobService(rpc.JobInternalServiceServicer):
    """The six methods on records, which docs/contract.md defines."""

    def __init__(
        self, state_owner: StateOwner, records: Records, *, retention: Evict = RETENTION, mint_ids: Mint | None = None
    ) -> None:
        """`keeper` must be that of these records."""
        self._state_owner = state_owner
        self._records = records
        self._listing = JobListing(state_owner, records)
        self._cleaner = RecordCleaner(state_owner, records, retention)
        self._mint = mint_ids or random_minter()
        self._cleaner.look()

    @answered
    async def CreateJob(self, request: pb.CreateJobRequest, context: Context) -> pb.CreateJobResponse:
        """Creates a job, or returns the one that the same submission created before."""
        template, draft = submission_of(request)
        job_id = draft.id or next(iter(self._mint(1)))

        def decide(now_ms: int) -> OwnerDecision | Refusal:
            due_ms = max(draft.not_before_ms, now_ms + draft.delay_ms if draft.delay_ms else 0)
            new = NewJob(job_id, 0, draft.payload, due_ms, draft.extra)
            decided = self._records.create(template, new, now_ms, is_id_given=bool(draft.id))
            return _verdict(decided, lambda reply: log_created(reply, template), spare=_SPARE_BYTES)

        reply: CreateReply = await self._state_owner.act(decide)
        return pb.CreateJobResponse(
            job_id=reply.job_id,
            status=job_status(reply.state),
            existing=not reply.is_new,
            created_at_ms=reply.created_ms,
            order=reply.number,
        )

    @answered
    async def DeleteJobIfStatus(
        self, request: pb.DeleteJobIfStatusRequest, context: Context
    ) -> pb.DeleteJobIfStatusResponse:
        """Undoes a submission, if the job is in the expected state and no other submission has found it."""
        job_id, expected = checked_id(request.job_id), _state("expected_status", request.expected_status)

        def decide(now_ms: int) -> OwnerDecision | Refusal:
            decided = self._records.delete(job_id, expected, now_ms)
            return _verdict(decided, lambda reply: log_deleted(request, reply))

        reply: MoveReply = await self._state_owner.act(decide)
        if not reply.applied:
            log_deleted(request, reply)
        return pb.DeleteJobIfStatusResponse(deleted=reply.applied, current_status=job_status(reply.state))

    @answered
    async def GetJobRecord(self, request: pb.GetJobRecordRequest, context: Context) -> pb.GetJobRecordResponse:
        """Returns all data of one job."""
        job_id, has_payload = checked_id(request.job_id), not request.without_payload

        def query(now_ms: int) -> pb.GetJobRecordResponse | None:
            job = self._records.job(job_id)
            return None if job is None else record_message(self._records, job, now_ms, has_payload=has_payload)

        found = await self._state_owner.read(query)
        if found is None:
            raise unknown_job(job_id).error()
        return found

    @answered
    async def ListJobRecords(self, request: pb.ListJobRecordsRequest, context: Context) -> pb.ListJobRecordsResponse:
        """Returns one page of all jobs, or one part of a search."""
        if request.HasField("search"):
            return await self._listing.search(request)
        return await self._listing.page(request)

    @answered
    async def TransitionJobStatus(
        self, request: pb.TransitionJobStatusRequest, context: Context
    ) -> pb.TransitionJobStatusResponse:
        """Moves a job, if it is in the expected state and the token is that of its current grant."""
        move = move_of(request)

        def told(reply: MoveReply) -> None:
            log_moved(request, reply)
            if reply.state in TERMINAL:
                self._cleaner.look()

        reply: MoveReply = await self._state_owner.act(lambda now_ms: _verdict(self._records.move(move, now_ms), told))
        if not reply.applied:
            log_moved(request, reply)
        return pb.TransitionJobStatusResponse(
            applied=reply.applied, current_status=job_status(reply.state), token=reply.token
        )

    @answered
    async def SetCancelRequested(
        self, request: pb.SetCancelRequestedRequest, context: Context
    ) -> pb.SetCancelRequestedResponse:
        """Sets the cancel flag of a job; a terminal job is unchanged, and the reply has its status."""
        job_id, reason = checked_id(request.job_id), request.reason
        if not request.cancel_requested:
            message = "cancel_requested must be true: a cancel request cannot be revoked"
            raise InvalidArgumentError(message, reason="CANCEL_NOT_REVOCABLE")

        def decide(now_ms: int) -> OwnerDecision | Refusal:
            decided = self._records.request_cancel(job_id, reason, now_ms)
            return _verdict(decided, lambda reply: log_cancel_requested(request, reply))

        reply: MoveReply = await self._state_owner.act(decide)
        return pb.SetCancelRequestedResponse(applied=reply.applied, current_status=job_status(reply.state))


def move_of(request: pb.TransitionJobStatusRequest) -> Move:
    """Returns the move of a request; checks everything that does not depend on the record."""
    try:
        spends = SpentBudget(request.spends)
    except ValueError:
        names = ", ".join(known.name for known in SpentBudget)
        message = f"spends must be one of {names}, got {request.spends}"
        raise InvalidArgumentError(message, reason="SPENDS_INVALID") from None
    worker = request.worker_id
    return Move(
        checked_id(request.job_id),
        _state("expected_from_status", request.expected_from_status),
        _state("to_status", request.to_status),
        request.token,
        checked_name("worker_id", worker, reason="WORKER_ID_INVALID") if worker else "",
        request.reason,
        request.not_before_ms,
        spends,
    )


def _state(what: str, status: int) -> State:
    """Returns a state that a request must have; raises `InvalidArgumentError` for an unknown one."""
    try:
        return State(status)
    except ValueError:
        names = ", ".join(state.name for state in State)
        raise InvalidArgumentError(f"{what} must be one of {names}, got {status}", reason="STATUS_INVALID") from None


def _verdict(
    decided: RecordDecision | Refusal, told: Callable[[Any], None], *, spare: int = 0
) -> OwnerDecision | Refusal:
    """Returns the decision for the keeper; `told` receives the reply once the event, if any, is durable."""
    if isinstance(decided, Refusal):
        return decided
    return OwnerDecision(decided.event, decided.reply, spare, lambda: told(decided.reply))


def open_job(environment: JobEnvironment, data: Path | None, host: Host) -> Service:
    """Opens the job service: the records of jobs."""
    # On disk, request ids are kept as long as their jobs; their number is limited only in memory.
    machine = Records(0 if data else environment.dedup_keys_max, environment.memory_bytes)
    state_owner = opened(machine, data and data / "job", host, environment)
    server = ServiceServer(full_name("JobInternalService"), hashes_of(environment))
    retention = msgspec.structs.replace(
        RETENTION,
        retain_ms=environment.retain_ms,
        retain_failed_ms=environment.retain_failed_ms,
        # Finished jobs take at most half of the memory, so that there is space for new ones.
        retain_bytes=min(RETENTION.retain_bytes, environment.memory_bytes // 2),
    )
    rpc.add_JobInternalServiceServicer_to_server(JobService(state_owner, machine, retention=retention), server.handlers)
    return OwnerService(server, environment.port, state_owner)
