"""The three unary calls of a worker to the coordinator, with deadlines and our errors."""

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import grpc

from holdfast import limits
from holdfast.clock import system_clock
from holdfast.errors import (
    AbortedError,
    DeadlineExceededError,
    HoldfastError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)
from holdfast.ports import Introduction
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.topologies.microservices.backend.owner_clients import Metadata
from holdfast.topologies.microservices.grpc_errors import error_of

_HEARTBEAT_S = limits.DEADLINE_MS_HEARTBEAT / 1_000
_FETCH_S = limits.DEADLINE_MS_FETCH / 1_000
_REPORT_S = limits.DEADLINE_MS_INTERNAL / 1_000

#: Token and job id of each lease.
Leases = Mapping[int, str]


class NoAnswerError(UnavailableError):
    """The coordinator did not answer, or cannot at the moment: the call may be repeated."""


class CoordinatorCalls:
    """One worker's calls to one coordinator. Each raises `NoAnswerError` if it may be repeated.

    An `InvalidArgumentError` or `AbortedError` would also fail in another session; after any other `UnavailableError` a
    new session may be opened.
    """

    def __init__(self, channel: grpc.aio.Channel, introduction: Introduction, metadata: Metadata = ()) -> None:
        self._channel = channel
        self._stub: Any = rpc.CoordinatorInternalServiceStub(channel)
        self._metadata = metadata
        self._clock = system_clock()
        self._worker_id = introduction.worker_id
        self._slots = introduction.slots
        #: Distinguishes this session from another one of the same worker id.
        self._incarnation = secrets.randbits(63)
        self._wanted = pb.Wanted(routes=sorted(introduction.types), queues=sorted(introduction.queues))

    async def heartbeat(
        self, running: Leases, *, released: Leases | None = None, is_arriving: bool = False, is_leaving: bool = False
    ) -> pb.WorkerHeartbeatResponse:
        """Sends a heartbeat, which names every lease that is held."""
        request = pb.WorkerHeartbeatRequest(
            worker_id=self._worker_id,
            heartbeat_at_ms=self._clock.wall_ms(),
            capacity_hint=self._slots,
            running=pb.RunningJobs(jobs=_named(running)),
            released=_named(released or {}),
            is_arriving=is_arriving,
            is_leaving=is_leaving,
            incarnation=self._incarnation,
        )
        answer: pb.WorkerHeartbeatResponse = await self._ask(self._stub.WorkerHeartbeat, request, _HEARTBEAT_S)
        return answer

    async def fetch(self) -> pb.FetchWorkResponse:
        """Requests one lease. If the reply is lost, a heartbeat that does not name the lease reveals that."""
        request = pb.FetchWorkRequest(worker_id=self._worker_id, wanted=self._wanted)
        answer: pb.FetchWorkResponse = await self._ask(self._stub.FetchWork, request, _FETCH_S)
        return answer

    async def report(self, request: pb.ReportWorkOutcomeRequest) -> pb.ReportWorkOutcomeResponse:
        """Reports the outcome of an attempt; safe to repeat."""
        answer: pb.ReportWorkOutcomeResponse = await self._ask(self._stub.ReportWorkOutcome, request, _REPORT_S)
        return answer

    async def close(self) -> None:
        """Closes the channel; calls in flight fail."""
        await self._channel.close(None)

    async def _ask(self, method: Any, request: object, deadline_s: float) -> Any:  # noqa: ANN401 - no types in stubs
        try:
            return await method(request, timeout=deadline_s, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise _explained(error) from error


def _named(leases: Leases) -> Iterable[pb.RunningJob]:
    return [pb.RunningJob(job_id=job_id, token=token) for token, job_id in leases.items()]


def _explained(error: grpc.aio.AioRpcError) -> HoldfastError:
    known = error_of(error)
    if isinstance(known, AbortedError | InvalidArgumentError):
        return known
    if isinstance(known, UnavailableError | DeadlineExceededError | ResourceExhaustedError) or error.code() in {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
    }:
        return NoAnswerError(f"the coordinator does not answer: {known.message[:200]}", reason=known.reason)
    return UnavailableError(known.message, reason=known.reason)
