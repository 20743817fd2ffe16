"""`/api/v1/events`: all events, as server-sent events.

`id` is the position up to which the stream is complete; a client that reconnects with it as `Last-Event-ID` misses no
event.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Coroutine
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast import limits
from holdfast.core.capabilities import Capability
from holdfast.errors import InvalidArgumentError, UnavailableError
from holdfast.ports import FeedPart
from holdfast.server.auth.permissions import Scope
from holdfast.server.backend import Backend
from holdfast.server.http.event_stream import FeedListener, FeedReader, WantedEntries, chunk
from holdfast.server.http.jobs import states_of
from holdfast.server.http.request import EVENT_STREAM, AdmittedRequest, ResponseConnection
from holdfast.server.http.routing import Route
from holdfast.server.http.system import SystemRoutes

_POSITION = re.compile(r"[0-9]{1,18}")
#: Clients reconnect after one second.
_RETRY = b"retry: 1000\n\n"
_HEADERS = [(b"content-type", EVENT_STREAM), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]


class EventFilters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters for entries, the start position, and whether statistics are sent; empty filters match everything."""

    kind: list[Literal["entries", "stats"]] = []
    after: Annotated[str, Meta(max_length=18)] = ""
    job: Annotated[list[str], Meta(max_length=100)] = []
    what: Annotated[list[str], Meta(max_length=20)] = []
    status: list[Annotated[str, Meta(max_length=200)]] = []
    worker: Annotated[str, Meta(max_length=limits.NAME_CHARS_MAX)] = ""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One event; `data` is JSON: an array of entries up to the position `id`, or the content of `/api/v1/stats`."""

    event: Literal["entries", "stats"]
    data: str
    id: Annotated[str, Meta(pattern="^[0-9]{1,18}$")] = "0"


class EventRoutes:
    """The event stream over HTTP."""

    def __init__(self, backend: Backend, system: SystemRoutes) -> None:
        self._backend = backend
        self._system = system
        self._teller: FeedReader | None = None
        self._open = 0

    async def listen(self, request: AdmittedRequest) -> "FeedStream":
        """Streams all events, from now on or after a position."""
        teller = self._told()
        if self._open >= limits.HTTP_FEEDS_MAX:
            raise UnavailableError(
                f"the limit of {limits.HTTP_FEEDS_MAX} open event streams is reached; try again later",
                reason="TOO_MANY_FEEDS",
            )
        filters = request.query or EventFilters()
        kinds = filters.kind or ["entries"]
        wanted = WantedEntries(
            frozenset(filters.job),
            frozenset(filters.what),
            frozenset(state.name for state in states_of(filters.status)),
            filters.worker,
        )
        listener = FeedListener(request.line, wanted, has_entries="entries" in kinds, has_stats="stats" in kinds)
        after = _after(request, filters)
        self.count(1)  # before the first await, because many requests may arrive at once
        try:
            past = await teller.join(listener, after)
        except BaseException:
            self.count(-1)
            raise
        assert request.over is not None, "a stream request has `over`"
        return FeedStream(self, teller, listener, past, request.line, request.over)

    def _told(self) -> FeedReader:
        feed = self._backend.capability(self._backend.feed, Capability.FEED)
        if self._teller is None:
            self._teller = FeedReader(feed, self._system.stats_json if self._backend.admin is not None else None)
        return self._teller

    def count(self, change: int) -> None:
        """Changes the number of open streams by this much."""
        self._open += change

    async def close(self) -> None:
        """Ends all streams, because the server is stopping."""
        if self._teller is not None:
            await self._teller.close()


class FeedStream:
    """One open event stream."""

    def __init__(
        self,
        routes: EventRoutes,
        teller: FeedReader,
        listener: FeedListener,
        past: AsyncGenerator[FeedPart, None] | None,
        line: ResponseConnection,
        over: asyncio.Event,
    ) -> None:
        self._routes = routes
        self._teller = teller
        self._listener = listener
        self._past = past
        self._line = line
        self._over = over

    async def run(self) -> None:
        """Runs until the client disconnects, does not read or loses its permission, or the server stops."""
        listener = self._listener
        try:
            self._line.begin(_HEADERS)
            listener.has_begun = True
            self._line.write(chunk(_RETRY + b"id: %d\n\n" % listener.position))
            ends: list[Coroutine[Any, Any, object]] = [listener.ended.wait(), self._over.wait()]
            ends += [self._then(self._past)] if self._past is not None else []
            waits = [asyncio.ensure_future(end) for end in ends]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            await asyncio.wait(waits)
        finally:
            self._routes.count(-1)
            self._teller.leave(listener)

    async def _then(self, past: AsyncGenerator[FeedPart, None]) -> None:
        """Sends past events, then waits until the listener has ended."""
        await self._teller.catch_up(self._listener, past)
        await self._listener.ended.wait()


def _after(request: AdmittedRequest, filters: EventFilters) -> int | None:
    """Returns the position to continue after; a browser that reconnects sends it in a header."""
    given = request.head.header(b"last-event-id") or filters.after
    if not given:
        return None
    if not _POSITION.fullmatch(given):
        raise InvalidArgumentError(
            f"after or Last-Event-ID must be a position, got {given[:40]!r}", reason="POSITION_INVALID"
        )
    return int(given)


def routes(events: EventRoutes) -> list[Route]:
    """Returns the routes of this module."""
    return [
        Route(
            method="GET",
            path="/api/v1/events",
            scope=Scope.READ,
            handler=events.listen,
            summary="Stream all events as server-sent events, without gaps",
            tag="events",
            query=EventFilters,
            answers={200: Told},
            content="text/event-stream",
            is_stream=True,
            problems=(404, 501),
        )
    ]
