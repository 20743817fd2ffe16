"""Links: the SDK's connection to the server of its jobs, whichever process that is."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol, Self, TypeVar

import msgspec

from holdfast.client.reconnect_policy import Patience, patiently
from holdfast.core.commands import Submitted
from holdfast.core.model import Template
from holdfast.errors import HoldfastError
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


class Client(JobApi, AdminApi, FeedApi, CapabilityApi, Protocol):
    """Every port of one backend, for commands. It ends with its block."""

    @property
    def schedules(self) -> ScheduleApi:
        """The schedules of the same backend."""
        ...

    async def close(self) -> None:
        """Ends its connections."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...


class DirectPlace(Protocol):
    """A place whose jobs commands and workers reach without a server of ours."""

    @property
    def url(self) -> str:
        """Its name for apps and workers."""
        ...

    async def client(self) -> Client:
        """Connects a client; `UnavailableError` if no server answers."""
        ...

    def work(self) -> WorkApi:
        """Where a worker gets its jobs."""
        ...


class Near(Protocol):
    """Calls to the server on the caller's own thread, for synchronous callers, which would wait anyway.

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
    """A connection to the current server; it outlives a single server. It belongs to one event loop."""

    @property
    def is_private(self) -> bool:
        """Whether its jobs are run by workers of this process alone."""
        ...

    async def call(
        self, use: Callable[[LinkPorts], Awaitable[T]], *, is_repeatable: bool = True, is_waiting: bool = False
    ) -> T:
        """Returns the response. Repeats a repeatable call at the next server; else raises `UnavailableError`.

        A call that waits for something to happen (`is_waiting`) is not hurried by any deadline.
        """
        ...

    def stream(self, use: Callable[[LinkPorts], AsyncIterator[T]]) -> AsyncIterator[T]:
        """Yields the items of a stream; after a lost connection it restarts at the next server, so items may repeat."""
        ...

    def near(self) -> Near | None:
        """Returns the API for calls on the current thread, if one is available now; callable on any thread."""
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


class ClientLink:
    """The base of links over one client, whose connections outlive the loss of a server.

    The client repeats calls by its own profile.
    """

    is_private = False

    def __init__(self, client: Client) -> None:
        self._ports = LinkPorts(client, client, client, client.schedules, client)
        self._close = client.close

    async def call(
        self, use: Callable[[LinkPorts], Awaitable[T]], *, is_repeatable: bool = True, is_waiting: bool = False
    ) -> T:
        """The answer; only a call that waits for something anyway waits for a server that is being replaced."""
        if is_waiting and is_repeatable:
            return await patiently(lambda: use(self._ports))
        return await use(self._ports)

    async def stream(self, use: Callable[[LinkPorts], AsyncIterator[T]]) -> AsyncIterator[T]:
        """The items of a stream, which begins anew after a loss."""
        patience = Patience()
        while True:
            patience.begin()
            try:
                async for item in use(self._ports):
                    yield item
            except HoldfastError as error:
                await patience.bear(error)
            else:
                return

    def near(self) -> Near | None:
        """None: the client belongs to the link's own loop."""
        return None

    async def close(self) -> None:
        """Ends the connections of the client."""
        await self._close()

    def disown(self) -> None:
        """Does nothing: a forked child never touches connections of its parent."""
