"""`/api/v1/events`: everything that happens, as server-sent events.

`id` is the position up to which everything was told; who comes back with it as `Last-Event-ID` misses nothing.
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
from holdfast.server.http.request import EVENT_STREAM, AnswerLine, Asked
from holdfast.server.http.routing import Route
from holdfast.server.http.system import SystemRoutes

_POSITION = re.compile(r"[0-9]{1,18}")
#: How long a client waits before it comes back.
_RETRY = b"retry: 1000\n\n"
_HEADERS = [(b"content-type", EVENT_STREAM), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]


class EventFilters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which entries, from which position on, and whether numbers come with them; what is not said is not looked at."""

    kind: list[Literal["entries", "stats"]] = []
    after: Annotated[str, Meta(max_length=18)] = ""
    job: Annotated[list[str], Meta(max_length=100)] = []
    what: Annotated[list[str], Meta(max_length=20)] = []
    status: list[Annotated[str, Meta(max_length=200)]] = []
    worker: Annotated[str, Meta(max_length=limits.NAME_CHARS_MAX)] = ""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One event; `data` is JSON: an array of entries up to the position `id`, or what `/api/v1/stats` says."""

    event: Literal["entries", "stats"]
    data: str
    id: Annotated[str, Meta(pattern="^[0-9]{1,18}$")] = "0"


class EventRoutes:
    """The feed over HTTP."""

    def __init__(self, backend: Backend, system: SystemRoutes) -> None:
        self._backend = backend
        self._system = system
        self._teller: FeedReader | None = None
        self._open = 0

    async def listen(self, asked: Asked) -> "FeedStream":
        """Everything from now on, or from a position on."""
        teller = self._told()
        if self._open >= limits.HTTP_FEEDS_MAX:
            raise UnavailableError(
                f"the limit of {limits.HTTP_FEEDS_MAX} open feeds is reached", reason="TOO_MANY_FEEDS"
            )
        filters = asked.query or EventFilters()
        kinds = filters.kind or ["entries"]
        wanted = WantedEntries(
            frozenset(filters.job),
            frozenset(filters.what),
            frozenset(state.name for state in states_of(filters.status)),
            filters.worker,
        )
        listener = FeedListener(asked.line, wanted, has_entries="entries" in kinds, has_stats="stats" in kinds)
        after = _after(asked, filters)
        self.count(1)  # before anything is waited for: many may come at once
        try:
            past = await teller.join(listener, after)
        except BaseException:
            self.count(-1)
            raise
        assert asked.over is not None, "who listens stays"
        return FeedStream(self, teller, listener, past, asked.line, asked.over)

    def _told(self) -> FeedReader:
        feed = self._backend.capability(self._backend.feed, Capability.FEED)
        if self._teller is None:
            self._teller = FeedReader(feed, self._system.stats_json if self._backend.admin is not None else None)
        return self._teller

    def count(self, change: int) -> None:
        """One more feed is open, or one less."""
        self._open += change

    async def close(self) -> None:
        """Everybody who listens is told that this server stops."""
        if self._teller is not None:
            await self._teller.close()


class FeedStream:
    """One open feed."""

    def __init__(
        self,
        routes: EventRoutes,
        teller: FeedReader,
        listener: FeedListener,
        past: AsyncGenerator[FeedPart, None] | None,
        line: AnswerLine,
        over: asyncio.Event,
    ) -> None:
        self._routes = routes
        self._teller = teller
        self._listener = listener
        self._past = past
        self._line = line
        self._over = over

    async def run(self) -> None:
        """Until the client leaves, does not read or loses its right, or the server stops."""
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
        """The past, and then as long as it lasts."""
        await self._teller.catch_up(self._listener, past)
        await self._listener.ended.wait()


def _after(asked: Asked, filters: EventFilters) -> int | None:
    """The position to go on from; a browser that comes back says it in a header."""
    given = asked.head.header(b"last-event-id") or filters.after
    if not given:
        return None
    if not _POSITION.fullmatch(given):
        raise InvalidArgumentError(f"expected a position, got {given[:40]!r}", reason="POSITION_INVALID")
    return int(given)


def routes(events: EventRoutes) -> list[Route]:
    """What this part of the table says."""
    return [
        Route(
            method="GET",
            path="/api/v1/events",
            scope=Scope.READ,
            handler=events.listen,
            summary="Everything that happens, as server-sent events, without a gap",
            tag="events",
            query=EventFilters,
            answers={200: Told},
            content="text/event-stream",
            is_stream=True,
            problems=(404, 501),
        )
    ]
