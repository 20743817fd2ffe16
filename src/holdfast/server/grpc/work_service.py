"""The services for workers over gRPC: the stream of `holdfast.v1`, and the frozen unary calls."""

import asyncio

from holdfast import limits
from holdfast.core.commands import GrantedLease
from holdfast.core.model import SIM_TYPE, Extra
from holdfast.errors import HoldfastError
from holdfast.ledger.work_api import LedgerWork
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import holdfast_pb2_grpc as rpc
from holdfast.proto import taskqueue_internal_pb2 as internal_pb
from holdfast.proto import taskqueue_internal_pb2_grpc as internal_rpc
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.server.grpc.internal_messages import report_row
from holdfast.server.grpc.status import Context, answered, refuse_undecodable
from holdfast.server.grpc.streams import Streams
from holdfast.server.grpc.work_session import ServedSession
from holdfast.server.request_checks import checked_name


class WorkService(rpc.WorkServiceServicer):
    """One stream for each worker."""

    def __init__(self, work: LedgerWork, welcome: pb.Welcome) -> None:
        self._work = work
        self._welcome = welcome
        self._streams = Streams("Work")

    async def Work(self, requests: object, context: Context) -> None:
        """Serves a session until the worker leaves, the connection drops, or a newer session takes over."""
        await self._streams.serve(_WorkStream(self._work, self._welcome, context), context)

    def stop(self) -> None:
        """Notifies every worker that the server is stopping; workers keep their leases."""
        self._streams.stop()


class _WorkStream:
    """One session over one call."""

    def __init__(self, work: LedgerWork, welcome: pb.Welcome, context: Context) -> None:
        self._context = context
        self._wake = asyncio.Event()
        self._session = ServedSession(work, welcome, self._wake.set)
        self._is_read = False
        self.stop = self._session.stop

    async def serve(self) -> None:
        reader = asyncio.create_task(self._read())
        try:
            await self._write()
        finally:
            reader.cancel()
            self._session.leave()

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._session.ending is not None:
                raise self._session.ending
            for message in self._session.messages():
                await self._context.write(message)
            if self._session.is_stopping or self._is_read:
                return

    async def _read(self) -> None:
        try:
            while isinstance(message := await self._context.read(), pb.WorkerMessage):
                self._session.take(message)
            refuse_undecodable(message)
        except HoldfastError as error:
            self._session.end(error)
        finally:
            self._is_read = True
            self._wake.set()


class CoordinatorService(internal_rpc.CoordinatorInternalServiceServicer):
    """The frozen unary calls of workers. They carry no job types, so they are granted simulated work only."""

    def __init__(self, work: LedgerWork, heartbeat_ms: int) -> None:
        self._work = work
        self._heartbeat_ms = heartbeat_ms

    @answered
    async def WorkerHeartbeat(
        self, request: internal_pb.WorkerHeartbeatRequest, context: Context
    ) -> internal_pb.WorkerHeartbeatResponse:
        """Handles a heartbeat: extends leases, and returns the jobs that should stop."""
        running = None
        if request.HasField("running"):
            running = [(job.job_id, job.token) for job in request.running.jobs]
        cancels = await self._work.heartbeat(checked_worker(request.worker_id), request.capacity_hint, running)
        return internal_pb.WorkerHeartbeatResponse(
            accepted=True, next_heartbeat_in_ms=self._heartbeat_ms, cancel=cancels
        )

    @answered
    async def FetchWork(self, request: internal_pb.FetchWorkRequest, context: Context) -> internal_pb.FetchWorkResponse:
        """Grants one job, or returns when to fetch again."""
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
        """Handles the outcome of an attempt; not accepted, without an error, if the worker has lost the lease."""
        row = report_row(request)
        refused = await self._work.report(checked_worker(request.worker_id), [row])
        return internal_pb.ReportWorkOutcomeResponse(accepted=not refused[0])


def fetch_hint_ms(wanted_ms: int) -> int:
    """Limits the time until an idle worker fetches again to the bounds of the contract."""
    return max(limits.FETCH_RETRY_MS_MIN, min(wanted_ms, limits.FETCH_RETRY_MS_MAX))


def checked_worker(worker_id: str) -> str:
    """Checks the worker id of a frozen call."""
    return checked_name("worker_id", worker_id, reason="WORKER_ID_INVALID")


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
