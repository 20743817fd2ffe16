"""The services that own jobs, what waits and results, as another service calls them.

Every call has a deadline. Who does not answer in time, or is not there, raises `UnavailableError`: whether the call
took effect is then unknown. What a service refuses is raised as it says it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import grpc

from holdfast import limits
from holdfast.client.refusals import error_of
from holdfast.errors import (
    DeadlineExceededError,
    HoldfastError,
    InternalError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnavailableError,
)
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc

Credentials = Sequence[tuple[str, str]]
Request = TypeVar("Request")
Response = TypeVar("Response")
Call = Callable[[Request], Awaitable[Response]]


class JobPeer:
    """The owner of job records."""

    def __init__(self, channel: grpc.aio.Channel, credentials: Credentials = ()) -> None:
        stub, callable_of = rpc.JobInternalServiceStub(channel), _Callables("job", credentials)
        self.record: Call[pb.GetJobRecordRequest, pb.GetJobRecordResponse] = callable_of(stub.GetJobRecord)
        self.records: Call[pb.ListJobRecordsRequest, pb.ListJobRecordsResponse] = callable_of(stub.ListJobRecords)
        self.move: Call[pb.TransitionJobStatusRequest, pb.TransitionJobStatusResponse] = callable_of(
            stub.TransitionJobStatus
        )


class QueuePeer:
    """The owner of what waits."""

    def __init__(self, channel: grpc.aio.Channel, credentials: Credentials = ()) -> None:
        stub, callable_of = rpc.QueueInternalServiceStub(channel), _Callables("queue", credentials)
        self.enqueue: Call[pb.EnqueueJobRequest, pb.EnqueueJobResponse] = callable_of(stub.EnqueueJob)
        self.dequeue: Call[pb.DequeueJobRequest, pb.DequeueJobResponse] = callable_of(stub.DequeueJob)
        self.remove: Call[pb.RemoveJobIfPresentRequest, pb.RemoveJobIfPresentResponse] = callable_of(
            stub.RemoveJobIfPresent
        )


class ResultPeer:
    """The owner of envelopes."""

    def __init__(self, channel: grpc.aio.Channel, credentials: Credentials = ()) -> None:
        stub, callable_of = rpc.ResultInternalServiceStub(channel), _Callables("result", credentials)
        self.store: Call[pb.StoreResultRequest, pb.StoreResultResponse] = callable_of(stub.StoreResult)


class Peers:
    """All that the coordinator calls. The channels are the caller's, to be closed by it."""

    def __init__(
        self,
        *,
        job: grpc.aio.Channel,
        queue: grpc.aio.Channel,
        result: grpc.aio.Channel,
        credentials: Credentials = (),
    ) -> None:
        self.job = JobPeer(job, credentials)
        self.queue = QueuePeer(queue, credentials)
        self.result = ResultPeer(result, credentials)


class _Callables:
    """Makes methods of a stub callable: with the deadline, with the credentials, with our errors."""

    def __init__(self, service: str, credentials: Credentials) -> None:
        self._service = service
        self._metadata = tuple(credentials)

    def __call__(self, method: Callable[..., Awaitable[Any]]) -> Call[Any, Any]:
        async def call(request: object) -> Any:  # noqa: ANN401 - the stubs carry no types; each use says its own
            try:
                return await method(request, timeout=limits.DEADLINE_MS_INTERNAL / 1_000, metadata=self._metadata)
            except grpc.aio.AioRpcError as error:
                raise self._explained(error) from error

        return call

    def _explained(self, error: grpc.aio.AioRpcError) -> HoldfastError:
        if error.code() in {grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN}:
            return UnavailableError(f"the call to the {self._service} service broke off", reason="SERVICE_UNAVAILABLE")
        known = error_of(error)
        if isinstance(known, UnavailableError | DeadlineExceededError):
            message = f"the {self._service} service does not answer: {known.message[:200]}"
            return UnavailableError(message, reason="SERVICE_UNAVAILABLE")
        if isinstance(known, UnauthenticatedError | PermissionDeniedError):
            # Our own caller is not to blame, and must not be told that it is.
            message = f"the {self._service} service refuses this caller: {known.message[:200]}"
            return InternalError(message, reason="CALLER_REFUSED")
        return known
