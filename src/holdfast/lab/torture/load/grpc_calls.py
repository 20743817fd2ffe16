"""Raw calls over gRPC, with a deadline and nothing that repeats them; the one place that reads gRPC's errors."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from holdfast.client.channel import open_channel
from holdfast.client.refusals import error_of
from holdfast.core.owner import owner_index
from holdfast.errors import Code
from holdfast.lab.torture.load.faces import DEADLINE_S, LostError, RefusedError, StrangeError

#: An answer that says that nobody knows.
UNKNOWN = frozenset({Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED})
#: What a client that asks only what it may can be refused with.
ALLOWED = frozenset(
    {Code.NOT_FOUND, Code.FAILED_PRECONDITION, Code.RESOURCE_EXHAUSTED, Code.ABORTED, Code.UNIMPLEMENTED}
)

Stub = Callable[..., Awaitable[Any]]


def owner_of(key: str, nodes: int) -> int:
    """Which of so many nodes has what is under this key."""
    return owner_index(key, nodes) if nodes > 1 else 0


class Channels:
    """A channel to each address: one, or the nodes of a monolith in their order."""

    def __init__(self, addresses: str) -> None:
        self.targets = [address.strip() for address in addresses.split(",")]
        self.channels = [open_channel(target) for target in self.targets]

    def stubs(self, kind: Callable[[grpc.aio.Channel], Any]) -> list[Any]:
        """One of this service for each."""
        return [kind(channel) for channel in self.channels]

    def owner(self, key: str) -> int:
        """Whom to ask about something under this key."""
        return owner_of(key, len(self.targets))

    async def close(self) -> None:
        """Ends the connections."""
        for channel in self.channels:
            await channel.close(None)


async def called(stub: Stub, request: object, deadline_s: float = DEADLINE_S) -> Any:  # noqa: ANN401 - any message
    """The answer; else whether it is known that nothing was done."""
    try:
        return await stub(request, timeout=deadline_s)
    except grpc.aio.AioRpcError as error:
        known = error_of(error)
        if error.code() is grpc.StatusCode.CANCELLED:  # the connection was taken away under it
            raise LostError("CANCELLED", known.message) from None
        if known.code in UNKNOWN:
            raise LostError(known.code.value, known.message) from None
        if known.code in ALLOWED:
            raise RefusedError(known.code.value, known.reason, known.message) from None
        raise StrangeError(error.code().name, f"{known.reason} {known.message}") from None
