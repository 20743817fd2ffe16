"""Workers' side of gRPC: the stream of `holdfast.v1`, and the frozen unary calls, over a coordinator."""

import asyncio
import re
from collections.abc import Iterable, Iterator

import structlog

from holdfast import limits
from holdfast.backends.ledger.work import LedgerWork
from holdfast.coordinator.sessions import Hello, Push, Session
from holdfast.core.commands import GrantedLease, ReportRow
from holdfast.core.lifecycle import CANCELED, DONE, FAILED, TERMINAL
from holdfast.core.model import SIM_TYPE, Extra
from holdfast.errors import AbortedError, HoldfastError, InternalError, InvalidArgumentError
from holdfast.gateway.grpc.status import Context, answered, refuse, refuse_undecodable
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import holdfast_pb2_grpc as rpc
from holdfast.proto import taskqueue_internal_pb2 as internal_pb
from holdfast.proto import taskqueue_internal_pb2_grpc as internal_rpc
from holdfast.proto import taskqueue_public_pb2 as public_pb

_NAME = re.compile(limits.NAME_PATTERN)
_OUTCOMES: dict[int, int] = {
    public_pb.JOB_OUTCOME_SUCCEEDED: DONE,
    public_pb.JOB_OUTCOME_FAILED: FAILED,
    public_pb.JOB_OUTCOME_CANCELED: CANCELED,
}


class WorkService(rpc.WorkServiceServicer):
    """One stream a worker."""

    def __init__(self, work: LedgerWork, welcome: pb.Welcome) -> None:
        self._work = work
        self._welcome = welcome
        self._streams: set[_Stream] = set()

    async def Work(self, requests: object, context: Context) -> None:
        """Serves a session until the worker leaves, the connection drops, or a newer session takes over."""
        stream = _Stream(self._work, self._welcome, context)
        self._streams.add(stream)
        try:
            await stream.serve()
        except HoldfastError as error:
            await refuse(context, error, "Work")
        finally:
            self._streams.discard(stream)

    def stop(self) -> None:
        """Tells every worker that the server goes away; leases stay theirs."""
        for stream in self._streams:
            stream.stop()


class _Stream:
    """The two directions of one session."""

    def __init__(self, work: LedgerWork, welcome: pb.Welcome, context: Context) -> None:
        self._dispatcher = work.dispatcher
        self._welcome = welcome
        self._context = context
        self._outbox: list[Push] = []
        self._wake = asyncio.Event()
        self._ending: HoldfastError | None = None
        self._is_stopping = False
        self._is_read = False

    async def serve(self) -> None:
        first = await self._context.read()
        refuse_undecodable(first)
        if not isinstance(first, pb.WorkerMessage):
            return
        session = Session(hello_of(first), self._push, self._supersede)
        reader = asyncio.create_task(self._read(session, first))
        try:
            self._dispatcher.attach(session)
            await self._write()
        finally:
            reader.cancel()
            # A server that stops takes no lease away: the worker comes back and names what it still runs.
            if not self._is_stopping:
                self._dispatcher.detach(session, is_orderly=self._is_read and session.is_draining)

    def stop(self) -> None:
        self._is_stopping = True
        self._wake.set()

    def _push(self, push: Push) -> None:
        self._outbox.append(push)
        self._wake.set()

    def _supersede(self) -> None:
        message = "a newer session of this worker id took over; give every worker an id of its own"
        self._end(AbortedError(message, reason="WORKER_SUPERSEDED"))

    def _end(self, error: HoldfastError) -> None:
        self._ending = self._ending or error
        self._wake.set()

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._ending:
                raise self._ending
            if self._outbox:
                outbox, self._outbox = self._outbox, []
                for message in self._messages(outbox):
                    await self._context.write(message)
            if self._is_stopping:
                await self._context.write(pb.CoordinatorMessage(stopping=True))
                return
            if self._is_read:
                return

    async def _read(self, session: Session, message: object) -> None:
        try:
            while isinstance(message, pb.WorkerMessage):
                self._take(session, message)
                message = await self._context.read()
                refuse_undecodable(message)
        except HoldfastError as error:
            self._end(error)
        except Exception as error:  # noqa: BLE001 - no worker's message may stop the server
            structlog.get_logger().error("bug", method="Work", exc_info=error)
            self._end(InternalError("the message could not be taken; the server's log says why"))
        finally:
            self._is_read = True
            self._wake.set()

    def _take(self, session: Session, message: pb.WorkerMessage) -> None:
        dispatcher = self._dispatcher
        if message.outcomes:
            dispatcher.report(session, message.report_id, [row_of(outcome) for outcome in message.outcomes])
        if message.HasField("heartbeat"):
            dispatcher.heartbeat(session)
        if message.released:
            dispatcher.release(session, frozenset(message.released))
        if message.draining:
            dispatcher.drain(session)
        if message.credits:
            dispatcher.grant_credits(session, min(message.credits, limits.LEASES_PER_GRANT_MAX * 10))

    def _messages(self, outbox: Iterable[Push]) -> Iterator[pb.CoordinatorMessage]:
        """As few messages as the limit of their size allows."""
        message, size = pb.CoordinatorMessage(), 0
        for push in outbox:
            if push.is_welcome:
                message.welcome.CopyFrom(self._welcome)
            message.cancels.extend(push.cancels)
            message.revoked.extend(push.revoked)
            message.reported = max(message.reported, push.reported)
            message.drained |= push.is_drained
            for lease in push.leases:
                wire = lease_of(lease)
                size += wire.ByteSize()
                if size > limits.BATCH_BYTES_MAX:
                    yield message
                    message, size = pb.CoordinatorMessage(), wire.ByteSize()
                message.leases.append(wire)
        yield message


def hello_of(message: pb.WorkerMessage) -> Hello:
    """A worker's introduction, checked."""
    if not message.HasField("hello"):
        raise InvalidArgumentError("expected the first message to say hello", reason="HELLO_MISSING")
    hello = message.hello
    for what, names in (("worker_id", [hello.worker_id]), ("types", hello.types), ("queues", hello.queues)):
        for name in names:
            checked_name(what, name)
    if len(hello.types) * max(1, len(hello.queues)) > limits.LANES_MAX:
        raise InvalidArgumentError(
            f"expected types times queues to be at most {limits.LANES_MAX},"
            f" got {len(hello.types)} types and {len(hello.queues)} queues; name no queue to serve all of them",
            reason="HELLO_TOO_LARGE",
        )
    held = frozenset(held.token for held in hello.held)
    return Hello(hello.worker_id, frozenset(hello.types), frozenset(hello.queues), hello.slots, held)


def row_of(outcome: pb.Outcome) -> ReportRow:
    """One outcome of a report."""
    if int(outcome.status) not in TERMINAL:
        raise InvalidArgumentError(
            f"expected an outcome to be DONE, FAILED or CANCELED, got {outcome.status}",
            reason="OUTCOME_INVALID",
        )
    return ReportRow(
        outcome.job_id,
        outcome.token,
        outcome.status,
        outcome.output,
        outcome.summary,
        outcome.failure_reason,
        outcome.runtime_ms,
        outcome.retryable,
        outcome.retry_after_ms,
    )


def lease_of(lease: GrantedLease) -> pb.Lease:
    """One lease as the worker gets it."""
    template = lease.template
    message = pb.Lease(
        job_id=lease.job_id,
        token=lease.token,
        type=template.type,
        payload=lease.payload,
        attempt=lease.attempt,
        timeout_ms=template.timeout_ms,
        simulated=template.simulated,
        queue=template.queue,
    )
    if lease.extra is not None:
        message.work_duration_ms = lease.extra.work_duration_ms
        message.payload_size_bytes = lease.extra.payload_size_bytes
        message.labels.update(lease.extra.labels)
        message.headers.update(lease.extra.headers)
    return message


class CoordinatorService(internal_rpc.CoordinatorInternalServiceServicer):
    """The frozen unary calls of workers. They know no job types, so they are given simulated work only."""

    def __init__(self, work: LedgerWork, heartbeat_ms: int) -> None:
        self._work = work
        self._heartbeat_ms = heartbeat_ms

    @answered
    async def WorkerHeartbeat(
        self, request: internal_pb.WorkerHeartbeatRequest, context: Context
    ) -> internal_pb.WorkerHeartbeatResponse:
        """A sign of life; extends leases, and tells which jobs should stop."""
        running = None
        if request.HasField("running"):
            running = [(job.job_id, job.token) for job in request.running.jobs]
        cancels = await self._work.heartbeat(checked_worker(request.worker_id), request.capacity_hint, running)
        return internal_pb.WorkerHeartbeatResponse(
            accepted=True, next_heartbeat_in_ms=self._heartbeat_ms, cancel=cancels
        )

    @answered
    async def FetchWork(self, request: internal_pb.FetchWorkRequest, context: Context) -> internal_pb.FetchWorkResponse:
        """One job, or a hint when to ask again."""
        lease = await self._work.fetch(checked_worker(request.worker_id), frozenset({SIM_TYPE}))
        if lease is None:
            return internal_pb.FetchWorkResponse(retry_after_ms=fetch_hint_ms(limits.FETCH_RETRY_MS_DEFAULT))
        extra = lease.extra or Extra()
        spec = public_pb.JobSpec(
            job_type=lease.template.type,
            work_duration_ms=extra.work_duration_ms,
            payload_size_bytes=extra.payload_size_bytes,
            labels=dict(extra.labels),
        )
        return internal_pb.FetchWorkResponse(
            assigned=True,
            job_id=lease.job_id,
            spec=spec,
            token=lease.token,
            attempt=lease.attempt,
            options=_options(lease),
        )

    @answered
    async def ReportWorkOutcome(
        self, request: internal_pb.ReportWorkOutcomeRequest, context: Context
    ) -> internal_pb.ReportWorkOutcomeResponse:
        """How an attempt ended; not accepted, without an error, if the lease is no longer the worker's."""
        state = _OUTCOMES.get(request.outcome)
        if state is None:
            raise InvalidArgumentError(f"expected an outcome, got {request.outcome}", reason="OUTCOME_INVALID")
        row = ReportRow(
            request.job_id,
            request.token,
            state,
            request.output_bytes,
            request.output_summary,
            request.failure_reason,
            request.runtime_ms,
        )
        refused = await self._work.report(checked_worker(request.worker_id), [row])
        return internal_pb.ReportWorkOutcomeResponse(accepted=not refused[0])


def fetch_hint_ms(wanted_ms: int) -> int:
    """When an idle worker should ask again, within the locked bounds."""
    return max(limits.FETCH_RETRY_MS_MIN, min(wanted_ms, limits.FETCH_RETRY_MS_MAX))


def checked_worker(worker_id: str) -> str:
    """The id of a worker of the frozen calls."""
    return checked_name("worker_id", worker_id, reason="WORKER_ID_INVALID")


def checked_name(what: str, name: str, *, reason: str = "NAME_INVALID") -> str:
    """A name that can be logged and shown."""
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"expected {what} to be 1 to {limits.NAME_CHARS_MAX} letters, digits, '.', '_' or '-', got {name[:80]!r}",
            reason=reason,
        )
    return name


def _options(lease: GrantedLease) -> internal_pb.JobOptions:
    template = lease.template
    return internal_pb.JobOptions(
        queue=template.queue,
        priority=template.priority,
        max_attempts=template.max_attempts,
        max_losses=template.max_losses,
        timeout_ms=template.timeout_ms,
        payload=lease.payload,
    )
