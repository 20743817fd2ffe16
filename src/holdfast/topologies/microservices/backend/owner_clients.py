"""Clients of the three owners (job, queue and result service), for the gateway and the coordinator.

Every call has the deadline of internal calls, one second by default. A refusal by the service is raised as the error
that it names. If the service does not answer in time or cannot be reached, `UnavailableError` is raised: it is then
unknown whether the call took effect.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc

from holdfast import limits
from holdfast.errors import (
    DeadlineExceededError,
    HoldfastError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnavailableError,
)
from holdfast.observe.logs import get_logger
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc
from holdfast.topologies.microservices.grpc_errors import error_of

Metadata = tuple[tuple[str, str], ...]
Request = TypeVar("Request")
Response = TypeVar("Response")
Call = Callable[[Request], Awaitable[Response]]


class JobOwner:
    """The owner of job records."""

    def __init__(
        self, channel: grpc.aio.Channel, metadata: Metadata = (), timeout_ms: int = limits.DEADLINE_MS_INTERNAL
    ) -> None:
        stub, callable_of = rpc.JobInternalServiceStub(channel), _Callables("job", metadata, timeout_ms)
        self.create: Call[pb.CreateJobRequest, pb.CreateJobResponse] = callable_of(stub.CreateJob)
        self.delete: Call[pb.DeleteJobIfStatusRequest, pb.DeleteJobIfStatusResponse] = callable_of(
            stub.DeleteJobIfStatus
        )
        self.record: Call[pb.GetJobRecordRequest, pb.GetJobRecordResponse] = callable_of(stub.GetJobRecord)
        self.records: Call[pb.ListJobRecordsRequest, pb.ListJobRecordsResponse] = callable_of(stub.ListJobRecords)
        self.move: Call[pb.TransitionJobStatusRequest, pb.TransitionJobStatusResponse] = callable_of(
            stub.TransitionJobStatus
        )
        self.request_cancel: Call[pb.SetCancelRequestedRequest, pb.SetCancelRequestedResponse] = callable_of(
            stub.SetCancelRequested
        )


class QueueOwner:
    """The owner of waiting jobs."""

    def __init__(
        self, channel: grpc.aio.Channel, metadata: Metadata = (), timeout_ms: int = limits.DEADLINE_MS_INTERNAL
    ) -> None:
        stub, callable_of = rpc.QueueInternalServiceStub(channel), _Callables("queue", metadata, timeout_ms)
        self.enqueue: Call[pb.EnqueueJobRequest, pb.EnqueueJobResponse] = callable_of(stub.EnqueueJob)
        self.dequeue: Call[pb.DequeueJobRequest, pb.DequeueJobResponse] = callable_of(stub.DequeueJob)
        self.remove: Call[pb.RemoveJobIfPresentRequest, pb.RemoveJobIfPresentResponse] = callable_of(
            stub.RemoveJobIfPresent
        )


class ResultOwner:
    """The owner of envelopes."""

    def __init__(
        self, channel: grpc.aio.Channel, metadata: Metadata = (), timeout_ms: int = limits.DEADLINE_MS_INTERNAL
    ) -> None:
        stub, callable_of = rpc.ResultInternalServiceStub(channel), _Callables("result", metadata, timeout_ms)
        self.store: Call[pb.StoreResultRequest, pb.StoreResultResponse] = callable_of(stub.StoreResult)
        self.envelope: Call[pb.GetResultRequest, pb.GetResultResponse] = callable_of(stub.GetResult)


class Owners:
    """All three owners, over one channel each. `metadata` authenticates the caller, if the services require it."""

    def __init__(
        self,
        *,
        job: grpc.aio.Channel,
        queue: grpc.aio.Channel,
        result: grpc.aio.Channel,
        metadata: Metadata = (),
        timeout_ms: int = limits.DEADLINE_MS_INTERNAL,
    ) -> None:
        self._channels = (job, queue, result)
        self.job = JobOwner(job, metadata, timeout_ms)
        self.queue = QueueOwner(queue, metadata, timeout_ms)
        self.result = ResultOwner(result, metadata, timeout_ms)

    async def close(self) -> None:
        """Closes the channels; calls in flight fail."""
        for channel in self._channels:
            await channel.close(None)


class _Callables:
    """Wraps the methods of a stub: adds deadline and metadata, and converts errors."""

    def __init__(self, service: str, metadata: Metadata, timeout_ms: int) -> None:
        self._service = service
        self._metadata = metadata
        self._timeout_s = timeout_ms / 1_000

    def __call__(self, method: Callable[..., Awaitable[Any]]) -> Call[Any, Any]:
        async def call(request: object) -> Any:  # noqa: ANN401 - stubs have no types; each use declares its own
            try:
                return await method(request, timeout=self._timeout_s, metadata=self._metadata)
            except grpc.aio.AioRpcError as error:
                raise self._explained(error) from error

        return call

    def _explained(self, error: grpc.aio.AioRpcError) -> HoldfastError:
        known = error_of(error)
        if isinstance(known, UnauthenticatedError | PermissionDeniedError):
            # A configuration error between services, which the caller of this service cannot fix.
            get_logger().error("caller_refused", service=self._service, message=known.message)
            return UnavailableError(f"the {self._service} service refuses this caller", reason="CALLER_REFUSED")
        is_silent = isinstance(known, UnavailableError | DeadlineExceededError) and known.reason == known.code.value
        if is_silent or error.code() in {grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN}:
            message = f"the {self._service} service does not answer; try again"
            return UnavailableError(message, reason="SERVICE_UNAVAILABLE")
        return known
