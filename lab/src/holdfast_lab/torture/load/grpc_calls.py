"""Raw gRPC calls with a deadline and without retries; the only place that interprets gRPC errors."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

import grpc

from holdfast.core.owner import owner_index
from holdfast.errors import Code
from holdfast.topologies.microservices.grpc_channel import open_channel
from holdfast.topologies.microservices.grpc_errors import error_of
from holdfast_lab.torture.load.interfaces import DEADLINE_S, LostError, RefusedError, StrangeError

#: Codes after which the outcome is unknown.
UNKNOWN = frozenset({Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED})
#: Refusals that a client without bugs can receive.
ALLOWED = frozenset(
    {Code.NOT_FOUND, Code.FAILED_PRECONDITION, Code.RESOURCE_EXHAUSTED, Code.ABORTED, Code.UNIMPLEMENTED}
)

Stub = Callable[..., Awaitable[Any]]


def owner_of(key: str, nodes: int) -> int:
    """Returns the index of the node that owns this key."""
    return owner_index(key, nodes) if nodes > 1 else 0


class Channels:
    """A channel to each address: one, or the nodes of a monolith in order."""

    def __init__(self, addresses: str) -> None:
        self.targets = [address.strip() for address in addresses.split(",")]
        self.channels = [open_channel(target) for target in self.targets]

    def stubs(self, kind: Callable[[grpc.aio.Channel], Any]) -> list[Any]:
        """Returns a stub of this service for each channel."""
        return [kind(channel) for channel in self.channels]

    def owner(self, key: str) -> int:
        """Returns the index of the node that owns this key."""
        return owner_of(key, len(self.targets))

    async def close(self) -> None:
        """Closes the connections."""
        for channel in self.channels:
            await channel.close(None)


def _has_hint(error: grpc.aio.AioRpcError) -> bool:
    """Whether the response has a retry hint."""
    metadata = cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ())
    return any(isinstance(value, bytes) and b"retry_after_s" in value for _, value in metadata)


async def called(stub: Stub, request: object, deadline_s: float = DEADLINE_S) -> Any:  # noqa: ANN401 - any message
    """Returns the response; raises `RefusedError` if nothing was done, `LostError` if the outcome is unknown."""
    try:
        return await stub(request, timeout=deadline_s)
    except grpc.aio.AioRpcError as error:
        known = error_of(error)
        if error.code() is grpc.StatusCode.CANCELLED:  # the connection was closed during the call
            raise LostError("CANCELLED", known.message) from None
        if known.code in UNKNOWN:
            raise LostError(known.code.value, known.message, has_hint=_has_hint(error)) from None
        if known.code in ALLOWED:
            raise RefusedError(known.code.value, known.reason, known.message) from None
        raise StrangeError(error.code().name, f"{known.reason} {known.message}") from None
