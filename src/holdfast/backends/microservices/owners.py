"""The three services that own jobs, what waits, and results, as the gateway calls them."""

from collections.abc import Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from holdfast import limits
from holdfast.client.refusals import error_of
from holdfast.errors import (
    DeadlineExceededError,
    HoldfastError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnavailableError,
)
from holdfast.logs import get_logger
from holdfast.proto import taskqueue_internal_pb2_grpc as rpc

Metadata = tuple[tuple[str, str], ...]
Response = TypeVar("Response", bound=Message)

_DEADLINE_S = limits.DEADLINE_MS_INTERNAL / 1_000


class Owners:
    """One channel to each. `metadata` says who calls, where the services ask for that."""

    def __init__(
        self, *, job: grpc.aio.Channel, queue: grpc.aio.Channel, result: grpc.aio.Channel, metadata: Metadata = ()
    ) -> None:
        self._channels = (job, queue, result)
        self.job = Owner("job", rpc.JobInternalServiceStub(job), metadata)
        self.queue = Owner("queue", rpc.QueueInternalServiceStub(queue), metadata)
        self.result = Owner("result", rpc.ResultInternalServiceStub(result), metadata)

    async def close(self) -> None:
        """Ends the channels; calls under way fail."""
        for channel in self._channels:
            await channel.close(None)


class Owner:
    """One of the services."""

    def __init__(self, name: str, stub: Any, metadata: Metadata) -> None:  # noqa: ANN401 - generated without types
        self._name = name
        self._stub = stub
        self._metadata = metadata

    async def ask(self, method: str, request: Message, response: type[Response]) -> Response:
        """The answer, within the deadline of internal calls; what the service refuses is raised as it says it.

        `UnavailableError` if it does not answer: whether the call took effect is unknown.
        """
        call: Callable[..., Any] = getattr(self._stub, method)
        try:
            answer = await call(request, timeout=_DEADLINE_S, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise self._explained(error, method) from error
        assert isinstance(answer, response)
        return answer

    def _explained(self, error: grpc.aio.AioRpcError, method: str) -> HoldfastError:
        known = error_of(error)
        if isinstance(known, UnauthenticatedError | PermissionDeniedError):
            # The client is not to blame, and cannot do anything about it.
            get_logger().error("caller_refused", service=self._name, method=method, message=known.message)
            return UnavailableError(f"the {self._name} service refuses this gateway", reason="CALLER_REFUSED")
        is_silent = isinstance(known, UnavailableError | DeadlineExceededError) and known.reason == known.code.value
        if is_silent or error.code() in {grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN}:
            message = f"the {self._name} service does not answer; try again"
            return UnavailableError(message, reason="SERVICE_UNAVAILABLE")
        return known
