"""The port of transports that carry calls to a server, and the decoding of the server's errors."""

from collections.abc import AsyncGenerator
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from holdfast.errors import Code, HoldfastError, error_class
from holdfast.proto import holdfast_pb2 as pb

Response = TypeVar("Response", bound=Message)


class Carrier(Protocol):
    """A transport to one server. Methods are named as on the wire, such as `JobService/SubmitJobs`."""

    async def call(self, method: str, request: Message, response: type[Response], deadline_s: float | None) -> Response:
        """Returns the response. After `UnavailableError` or `DeadlineExceededError` the call may have taken effect."""
        ...

    def stream(self, method: str, request: Message, response: type[Response]) -> AsyncGenerator[Response, None]:
        """Yields the responses as they arrive; a slow reader delays no other call. A failure ends the stream."""
        ...

    async def close(self) -> None:
        """Closes the transport; pending calls fail."""
        ...


class LineCarrier(Carrier, Protocol):
    """A carrier that reconnects after a loss."""

    @property
    def line(self) -> object | None:
        """The connection that is open now, if any; the next one may lead to another server."""
        ...


def error_named(code: str, reason: str, message: str) -> HoldfastError:
    """The exception that the server's own process would have raised."""
    known = Code(code) if code in Code.__members__ else Code.INTERNAL
    return error_class(known)(message, reason=reason)


def raise_refusal(reply: pb.Reply) -> None:
    """Raises the error in a reply, if there is one."""
    if reply.code:
        raise error_named(reply.code, reply.reason, reply.message)
