"""What the SDK holds on to: somebody who answers, wherever that is."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from holdfast.core.commands import Submitted
from holdfast.core.model import Template
from holdfast.ports import (
    AdminApi,
    CapabilityApi,
    FeedApi,
    JobApi,
    JobDraft,
    JobView,
    ResultView,
    ScheduleApi,
    WorkApi,
)

T = TypeVar("T")
Settled = tuple[JobView, ResultView]


class LinkPorts(msgspec.Struct, frozen=True):
    """Who answers at the moment."""

    jobs: JobApi
    admin: AdminApi
    feed: FeedApi
    schedules: ScheduleApi
    backend: CapabilityApi


class Near(Protocol):
    """Whoever answers, asked on the caller's own thread: for sync callers, who would wait anyway.

    A hand-over between threads and back costs about as much as a sync of the disk. All of this can be asked again of
    the link, by the same ids, so an error that may pass is left to the link.
    """

    def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Durable when it returns. Every draft has an id."""
        ...

    def settled(self, job_id: str, timeout_s: float | None) -> Settled | None:
        """The job and its result once it has ended; None if it has not in time."""
        ...


class Link(Protocol):
    """A way to whoever answers; it outlives any one of them. It belongs to one loop."""

    @property
    def is_private(self) -> bool:
        """Whether its jobs are run by workers of this process alone."""
        ...

    async def call(
        self, use: Callable[[LinkPorts], Awaitable[T]], *, is_repeatable: bool = True, is_waiting: bool = False
    ) -> T:
        """The answer. What is repeatable is asked again of whoever answers next; else `UnavailableError`.

        A call that waits for something to happen (`is_waiting`) is not hurried by any deadline.
        """
        ...

    def stream(self, use: Callable[[LinkPorts], AsyncIterator[T]]) -> AsyncIterator[T]:
        """What a stream yields; after a loss it begins anew with whoever answers next, so items may come again."""
        ...

    def near(self) -> Near | None:
        """On any thread: whoever can be asked on it now, if anybody can."""
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
