"""Links: the SDK's connection to the process that serves its jobs.

`sdk/url_schemes.py` chooses the link by the URL: `remote_link.py`, `nodes_link.py`, or one in the folder of a topology
(`embedded/directory.py`, `embedded/served_ledger.py`, `zookeeper/link.py`). The SDK calls a port as
`link.call(lambda ports: ports.jobs.submit(...))`, so that the link can repeat the call at the next server.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol, Self, TypeVar

import msgspec

from holdfast.client.reconnect_policy import ReconnectPolicy, patiently
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
    """The API of the server that is currently connected."""

    jobs: JobApi
    admin: AdminApi
    feed: FeedApi
    schedules: ScheduleApi
    backend: CapabilityApi


class Client(JobApi, AdminApi, FeedApi, CapabilityApi, Protocol):
    """Every port of one backend, for commands; an async context manager that closes its connections."""

    @property
    def schedules(self) -> ScheduleApi:
        """The schedules of the same backend."""
        ...

    async def close(self) -> None:
        """Closes its connections."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...


class DirectBackend(Protocol):
    """A backend that commands and workers reach without a Holdfast server."""

    @property
    def url(self) -> str:
        """The URL for apps and workers."""
        ...

    async def client(self) -> Client:
        """Connects a client; `UnavailableError` if no server answers."""
        ...

    def work(self) -> WorkApi:
        """Returns the API from which a worker gets its leases."""
        ...


class BlockingCalls(Protocol):
    """Calls to the server on the caller's own thread, for synchronous callers, which block anyway.

    A hand-over to another thread and back costs about as much as a disk sync. Every call can be repeated over the link
    with the same ids; callers do so after a retryable error.
    """

    def submit(self, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
        """Submits jobs, which are durable when it returns. Every draft must have an id."""
        ...

    def settled(self, job_id: str, timeout_s: float | None) -> Settled | None:
        """Waits until the job has ended and returns it with its result; None on timeout."""
        ...


class Link(Protocol):
    """A connection to the current server; it outlives a single server. It belongs to one event loop."""

    @property
    def is_private(self) -> bool:
        """Whether only workers of this process can run its jobs."""
        ...

    async def call(
        self, use: Callable[[LinkPorts], Awaitable[T]], *, is_repeatable: bool = True, is_waiting: bool = False
    ) -> T:
        """Returns the response. Repeats a repeatable call at the next server; else raises `UnavailableError`.

        `is_waiting` marks a call that waits for an event anyway; it may also wait for a server that is being replaced.
        """
        ...

    def stream(self, use: Callable[[LinkPorts], AsyncIterator[T]]) -> AsyncIterator[T]:
        """Yields the items of a stream; after a lost connection it restarts at the next server, so items may repeat."""
        ...

    def blocking_calls(self) -> BlockingCalls | None:
        """Returns the API for calls on the current thread, if one is available now; callable on any thread."""
        ...

    async def work(self) -> WorkApi:
        """Returns the API from which a worker of this process gets leases; sessions may be opened on any loop."""
        ...

    async def close(self) -> None:
        """Closes the link; a directory that this process serves is handed over at once."""
        ...

    def disown(self) -> None:
        """Releases the parent's locks and sockets in a forked child; the parent keeps its own."""
        ...


class ClientLink:
    """The base of links over one client, whose connections outlive the loss of a server.

    The client repeats calls by its own retry policy.
    """

    is_private = False

    def __init__(self, client: Client, *, is_replaced: bool = False) -> None:
        """`is_replaced`: a server that is lost has a successor soon, so every repeatable call waits for it."""
        self._ports = LinkPorts(client, client, client, client.schedules, client)
        self._close = client.close
        self._is_replaced = is_replaced

    async def call(
        self, use: Callable[[LinkPorts], Awaitable[T]], *, is_repeatable: bool = True, is_waiting: bool = False
    ) -> T:
        """Returns the response; of a single server, only a repeatable call with `is_waiting` waits for its return."""
        if (is_waiting or self._is_replaced) and is_repeatable:
            return await patiently(lambda: use(self._ports))
        return await use(self._ports)

    async def stream(self, use: Callable[[LinkPorts], AsyncIterator[T]]) -> AsyncIterator[T]:
        """Yields the items of a stream; restarts it after a lost connection."""
        reconnect_policy = ReconnectPolicy()
        while True:
            reconnect_policy.begin()
            try:
                async for item in use(self._ports):
                    yield item
            except HoldfastError as error:
                await reconnect_policy.bear(error)
            else:
                return

    def blocking_calls(self) -> BlockingCalls | None:
        """None: the client belongs to the link's own loop."""
        return None

    async def close(self) -> None:
        """Closes the connections of the client."""
        await self._close()

    def disown(self) -> None:
        """Does nothing: a forked child never touches connections of its parent."""
