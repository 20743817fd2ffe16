"""What carries calls to a server, and how the server's errors come back."""

from collections.abc import AsyncGenerator
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from holdfast.errors import Code, HoldfastError, error_class
from holdfast.proto import holdfast_pb2 as pb

Response = TypeVar("Response", bound=Message)


class Carrier(Protocol):
    """A way to one server. Methods are named as on the wire, such as `JobService/SubmitJobs`."""

    async def call(self, method: str, request: Message, response: type[Response], deadline_s: float | None) -> Response:
        """The answer. `UnavailableError` and `DeadlineExceededError` leave open whether the call took effect."""
        ...

    def stream(self, method: str, request: Message, response: type[Response]) -> AsyncGenerator[Response, None]:
        """The answers, as they come; whoever reads slowly holds nobody else up. A failure ends it."""
        ...

    async def close(self) -> None:
        """Ends it; calls under way fail."""
        ...


class LineCarrier(Carrier, Protocol):
    """One that opens its connection anew after a loss."""

    @property
    def line(self) -> object | None:
        """The connection that is open now, if one is: another one may lead to another server."""
        ...


def error_named(code: str, reason: str, message: str) -> HoldfastError:
    """What a server refused, as the exception that the server's own process would have raised."""
    known = Code(code) if code in Code.__members__ else Code.INTERNAL
    return error_class(known)(message, reason=reason)


def raise_refusal(reply: pb.Reply) -> None:
    """Raises the error that a reply carries, if it does."""
    if reply.code:
        raise error_named(reply.code, reply.reason, reply.message)
