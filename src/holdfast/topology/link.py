"""What the SDK holds on to: somebody who answers, wherever that is."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar

import msgspec

from holdfast.backends.ports import AdminApi, FeedApi, JobApi, WorkApi

T = TypeVar("T")


class Ports(msgspec.Struct, frozen=True):
    """Who answers at the moment."""

    jobs: JobApi
    admin: AdminApi
    feed: FeedApi


class Link(Protocol):
    """A way to whoever answers; it outlives any one of them. It belongs to one loop."""

    async def call(
        self, use: Callable[[Ports], Awaitable[T]], *, is_repeatable: bool = True, is_waiting: bool = False
    ) -> T:
        """The answer. What is repeatable is asked again of whoever answers next; else `UnavailableError`.

        A call that waits for something to happen (`is_waiting`) is not hurried by any deadline.
        """
        ...

    def stream(self, use: Callable[[Ports], AsyncIterator[T]]) -> AsyncIterator[T]:
        """What a stream yields; after a loss it begins anew with whoever answers next, so items may come again."""
        ...

    async def work(self) -> WorkApi:
        """Where a worker of this process gets its work now; its sessions may be opened on any loop."""
        ...

    async def close(self) -> None:
        """Ends it; what this process served is handed over at once."""
        ...

    def disown(self) -> None:
        """In a forked child: lets go of what is the parent's, without touching it."""
        ...
