"""The port of transports that carry calls to a server."""

from collections.abc import AsyncGenerator
from typing import Protocol, TypeVar

from holdfast.wire.methods import WireMethod

Q = TypeVar("Q")
R = TypeVar("R")


class Transport(Protocol):
    """A transport to one server."""

    async def call(self, method: WireMethod[Q, R], request: Q, deadline_s: float | None) -> R:
        """Returns the response. After `UnavailableError` or `DeadlineExceededError` the call may have taken effect."""
        ...

    def stream(self, method: WireMethod[Q, R], request: Q) -> AsyncGenerator[R, None]:
        """Yields the responses as they arrive; a slow reader delays no other call. A failure ends the stream."""
        ...

    async def close(self) -> None:
        """Closes the transport; pending calls fail."""
        ...


class PersistentTransport(Transport, Protocol):
    """A transport that reconnects after a loss."""

    @property
    def line(self) -> object | None:
        """The connection that is open now, if any; the next one may lead to another server."""
        ...
