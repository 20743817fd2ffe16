"""The three services that own jobs, what waits, and results, as gateway and coordinator call them.

Every call has the deadline of internal calls, a second unless told otherwise. What a service refuses is raised as it
says it. Who does not answer in time, or is not there, raises `UnavailableError`: whether the call took effect is then
unknown.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc

from holdfast import limits
from holdfast.client.refusals import error_of
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
    """The owner of what waits."""

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
    """All three, over one channel to each. `metadata` says who calls, where the services ask for that."""

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
        """Ends the channels; calls under way fail."""
        for channel in self._channels:
            await channel.close(None)


class _Callables:
    """Makes methods of a stub callable: with the deadline, with the metadata, with our errors."""

    def __init__(self, service: str, metadata: Metadata, timeout_ms: int) -> None:
        self._service = service
        self._metadata = metadata
        self._timeout_s = timeout_ms / 1_000

    def __call__(self, method: Callable[..., Awaitable[Any]]) -> Call[Any, Any]:
        async def call(request: object) -> Any:  # noqa: ANN401 - the stubs carry no types; each use says its own
            try:
                return await method(request, timeout=self._timeout_s, metadata=self._metadata)
            except grpc.aio.AioRpcError as error:
                raise self._explained(error) from error

        return call

    def _explained(self, error: grpc.aio.AioRpcError) -> HoldfastError:
        known = error_of(error)
        if isinstance(known, UnauthenticatedError | PermissionDeniedError):
            # Our own caller is not to blame, and cannot do anything about it.
            get_logger().error("caller_refused", service=self._service, message=known.message)
            return UnavailableError(f"the {self._service} service refuses this caller", reason="CALLER_REFUSED")
        is_silent = isinstance(known, UnavailableError | DeadlineExceededError) and known.reason == known.code.value
        if is_silent or error.code() in {grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN}:
            message = f"the {self._service} service does not answer; try again"
            return UnavailableError(message, reason="SERVICE_UNAVAILABLE")
        return known
