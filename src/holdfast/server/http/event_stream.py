"""The event stream: the feed is read once, encoded once, and sent to all listeners as the same bytes.

Invariants: a listener receives all entries after its position, in order and without a gap, or its connection ends. Only
unsent bytes are buffered for a listener, and its connection is aborted if there are too many. All listeners together
take a small share of the processor.
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import cast

import msgspec

from holdfast.core.history import Entry
from holdfast.errors import HoldfastError, UnavailableError
from holdfast.ports import FeedApi, FeedPart
from holdfast.server.http.request import ByteSink
from holdfast.server.http.schemas import happened
from holdfast.server.refusal_log import hidden

#: Maximum number of unsent bytes of a connection.
UNSENT_BYTES_MAX = 1 << 20
#: Approximate processor time to read one entry of the feed.
_ENTRY_S = 2e-6
_BEAT_S = 10.0
_STATS_S = 1.0
_ENCODER = msgspec.json.Encoder()
#: The share of the processor that feeds may take: 3 ms of every 100 ms, for any number of listeners.
_SHARE = 0.03


class FeedBudget:
    """Limits the processor time of all feeds together, because they share the loop that decides about jobs."""

    def __init__(self, share: float = _SHARE) -> None:
        self._factor = 1 / share
        self._free_at = 0.0

    async def rest(self, spent_s: float) -> None:
        """Waits until the time that was just spent is within the share."""
        now = asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now) + spent_s * self._factor
        await asyncio.sleep(self._free_at - now)


class WantedEntries(msgspec.Struct, frozen=True):
    """The filter of a subscriber; an empty field matches every entry."""

    jobs: frozenset[str] = frozenset()
    what: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()
    worker: str = ""

    @property
    def is_everything(self) -> bool:
        return not (self.jobs or self.what or self.states or self.worker)

    def wants(self, entry: Entry) -> bool:
        """Whether this entry is wanted."""
        return (
            (not self.jobs or entry.job_id in self.jobs)
            and (not self.what or entry.what in self.what)
            and (not self.states or entry.state in self.states)
            and (not self.worker or entry.worker == self.worker)
        )


class FeedListener:
    """One connection that receives events."""

    def __init__(self, line: ByteSink, wanted: WantedEntries, *, has_entries: bool, has_stats: bool) -> None:
        self._line = line
        self.wanted = wanted
        self.has_entries, self.has_stats = has_entries, has_stats
        #: The position up to which it has received all entries.
        self.position = 0
        #: Whether it has caught up, and receives new entries.
        self.is_present = False
        #: Whether the head of the response is sent; before it, nothing may be written.
        self.has_begun = False
        self.ended = asyncio.Event()

    def write(self, frame: bytes) -> None:
        """Sends a frame; aborts the connection of a client that does not read."""
        if self.ended.is_set():
            return
        if self._line.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self.ended.set()
            self._line.abort()
            return
        if frame:
            self._line.write(frame)


class FeedReader:
    """Reads the feed while there are subscribers."""

    def __init__(self, feed: FeedApi, stats: Callable[[], Awaitable[bytes]] | None) -> None:
        self._feed = feed
        self._stats = stats
        self._pace = FeedBudget()
        self._listeners: set[FeedListener] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._reading: FeedReadTask | None = None

    async def join(self, listener: FeedListener, after: int | None) -> AsyncGenerator[FeedPart, None] | None:
        """Adds a listener; with `after`, returns the past entries to send first, `NotFoundError` if they are gone."""
        past = None
        if after is not None:
            past = cast("AsyncGenerator[FeedPart, None]", self._feed.feed(after))
            listener.position = (await anext(past)).position
        self._listeners.add(listener)
        reading = self._read_on()
        try:
            await reading.has_begun.wait()
        except asyncio.CancelledError:
            self.leave(listener)  # the client disconnected while it waited
            raise
        if reading.has_ended:
            self.leave(listener)
            raise UnavailableError("the event feed is not available now; try again in a moment", reason="FEED_ENDED")
        if past is None:
            listener.position = reading.position
            listener.is_present = True
        return past

    def _read_on(self) -> "FeedReadTask":
        if self._reading is None:
            self._reading = FeedReadTask()
            self._tasks = [
                asyncio.create_task(work) for work in (self._read(self._reading), self._beat(), self._tell_stats())
            ]
        return self._reading

    async def catch_up(self, listener: FeedListener, past: AsyncGenerator[FeedPart, None]) -> None:
        """Sends past entries until the listener has caught up with the reader."""
        reading = self._read_on()
        async with aclosing(past) as parts:
            while listener.position < reading.position and not listener.ended.is_set():
                part = await anext(parts)
                start = time.thread_time()
                _tell(listener, part, EncodedFeedPart(part))
                await self._pace.rest(time.thread_time() - start + len(part.entries) * _ENTRY_S)
        listener.is_present = True

    def leave(self, listener: FeedListener) -> None:
        """Removes a listener; stops reading when the last one has left."""
        listener.ended.set()
        self._listeners.discard(listener)
        if not self._listeners:
            self._stop()

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._reading = None

    async def close(self) -> None:
        """Ends all listeners, because the server is stopping."""
        for listener in self._listeners:
            listener.ended.set()
        self._stop()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _read(self, reading: "FeedReadTask") -> None:
        try:
            async with aclosing(cast("AsyncGenerator[FeedPart, None]", self._feed.feed(None))) as parts:
                async for part in parts:
                    start = time.thread_time()
                    frames = EncodedFeedPart(part)
                    for listener in tuple(self._listeners):
                        if listener.is_present:
                            _tell(listener, part, frames)
                    reading.position = part.position
                    reading.has_begun.set()
                    await self._pace.rest(time.thread_time() - start + len(part.entries) * _ENTRY_S)
        except HoldfastError:
            self._dismiss(reading)  # the server stops
        except Exception as error:  # noqa: BLE001 - clients reconnect, which starts another reader
            hidden(error, "events")
            self._dismiss(reading)

    def _dismiss(self, reading: "FeedReadTask") -> None:
        """Ends this reader and its listeners; the next listener to join starts another reader."""
        reading.has_ended = True
        reading.has_begun.set()
        for listener in self._listeners:
            listener.ended.set()
        if self._reading is reading:
            self._stop()

    async def _beat(self) -> None:
        """Sends a comment with the position regularly, because clients give up a silent connection."""
        while True:
            await asyncio.sleep(_BEAT_S)
            for listener in [one for one in self._listeners if one.has_begun]:
                listener.write(chunk(b": alive\nid: %d\n\n" % listener.position))

    async def _tell_stats(self) -> None:
        while self._stats is not None:
            wanting = [one for one in self._listeners if one.has_stats and one.has_begun]
            if wanting:
                with contextlib.suppress(HoldfastError):
                    frame = chunk(b"event: stats\ndata: " + await self._stats() + b"\n\n")
                    for listener in wanting:
                        listener.write(frame)
            await asyncio.sleep(_STATS_S)


class FeedReadTask:
    """One reader of the feed; it lasts as long as there are subscribers."""

    def __init__(self) -> None:
        #: The position up to which the listeners that have caught up received all entries.
        self.position = -1
        self.has_begun = asyncio.Event()
        self.has_ended = False


class EncodedFeedPart:
    """One part of the feed as bytes, encoded once for all listeners with the same filter."""

    def __init__(self, part: FeedPart) -> None:
        self._part = part
        self._made: dict[tuple[WantedEntries, int], bytes] = {}
        self._by_job: dict[str, list[Entry]] | None = None

    def of(self, listener: FeedListener) -> bytes:
        """Returns the bytes for this listener; empty if its filter matches no entry."""
        first = self._part.entries[0].position
        after = listener.position if listener.position >= first else 0
        key = (listener.wanted, after)
        frame = self._made.get(key)
        if frame is None:
            entries = [entry for entry in self._candidates(listener.wanted) if entry.position > after]
            frame = self._made[key] = _frame(entries, self._part.position)
        return frame

    def _candidates(self, wanted: WantedEntries) -> Iterable[Entry]:
        if wanted.is_everything:
            return self._part.entries
        if not wanted.jobs:
            return filter(wanted.wants, self._part.entries)
        if self._by_job is None:
            self._by_job = defaultdict(list)
            for entry in self._part.entries:
                self._by_job[entry.job_id].append(entry)
        by_job = self._by_job
        found = (entry for job_id in wanted.jobs for entry in by_job.get(job_id, ()) if wanted.wants(entry))
        return sorted(found, key=lambda entry: entry.position)


def _tell(listener: FeedListener, part: FeedPart, frames: EncodedFeedPart) -> None:
    if part.position <= listener.position:
        return
    if listener.has_entries and part.entries:
        listener.write(frames.of(listener))
    listener.position = part.position


def _frame(entries: Sequence[Entry], position: int) -> bytes:
    if not entries:
        return b""
    data = _ENCODER.encode([happened(entry) for entry in entries])
    return chunk(b"id: %d\nevent: entries\ndata: %b\n\n" % (position, data))


def chunk(data: bytes) -> bytes:
    """Encodes one chunk of a response of unknown length."""
    return b"%x\r\n%b\r\n" % (len(data), data)
