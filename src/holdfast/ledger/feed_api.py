"""`FeedApi` over a coordinator in this process: from its window of recent events, and from its journal for older ones.

Invariants: every part begins where the previous part ended; only durable events are returned; a slow or lost reader
keeps no events in memory, and keeps files and pins for at most `_PATIENCE_S` per part.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Self

from holdfast.core.history import Entry, about, entries
from holdfast.errors import HoldfastError, InvalidArgumentError, NotFoundError
from holdfast.ledger.coordinator import STOPPING, Coordinator
from holdfast.ledger.event_window import MEMORY_WINDOW, EventWindow, WindowConfig
from holdfast.ledger.past_events import At, JournalWalk, PastEvents
from holdfast.ledger.time_travel import no_history
from holdfast.ports import FeedPart

#: Events that are read at once, and the size at which a part is complete; both limit the work between two awaits.
_SLICE_EVENTS = 256
_PART_CHARS = 128 * 1024
#: Estimated size of an entry without its reason.
_ENTRY_CHARS = 200
#: Events that a history reads before the event loop runs other tasks.
_STEP_EVENTS = 16
#: After this many positions without entries, an empty part reports the position to continue from.
_SILENT_POSITIONS = 1_000
#: How long a reader may take per part before its files and pins are released.
_PATIENCE_S = 10.0


class LedgerFeed:
    """The feed of all events, and the history of each job."""

    def __init__(self, window: EventWindow, past: PastEvents | None) -> None:
        """`past` is None without a journal that keeps its events; then only the events in the window are available."""
        self._window = window
        self._past = past
        self._readers: set[asyncio.Event] = set()
        self._failure: HoldfastError | None = None
        window.listeners.add(self._wake)

    @classmethod
    def over(cls, coordinator: Coordinator, past: PastEvents | None) -> Self:
        """Creates the feed of a coordinator's events from now on, and of the journal that it writes."""
        ledger = coordinator.ledger
        config = MEMORY_WINDOW if past is None else WindowConfig()
        window = EventWindow(ledger.position, config, ledger.state.bytes_held)
        coordinator.observers.append(window)
        return cls(window, past)

    def close(self) -> None:
        """Ends every reader with STOPPING, because the coordinator stops; readers continue at another server."""
        self._failure = STOPPING.error()
        self._wake()

    async def feed(self, after: int | None) -> AsyncGenerator[FeedPart, None]:
        """Yields the first part at once, even if it is empty: no event after its position is missed."""
        position = self._checked(self._window.durable_position if after is None else after)
        told = position - _SILENT_POSITIONS
        news = asyncio.Event()
        self._readers.add(news)
        try:
            while True:
                news.clear()
                async with aclosing(self._parts(position)) as parts:
                    async for part in parts:
                        position = part.position
                        if part.entries or position >= told + _SILENT_POSITIONS:
                            told = position
                            yield part
                self._refuse_if_closed()
                await news.wait()
        finally:
            self._readers.discard(news)

    async def history(self, job_id: str) -> list[Entry]:
        """Returns the history of a job, read from the journal in a thread, or from the window in steps."""
        if self._past is None:
            first = self._window.first_position
            found = await self._in_window(job_id)
        else:
            first = self._past.first_position
            found = await self._in_journal(self._past.history(job_id))
        if not found:
            raise no_history(job_id, first)
        return found

    async def _in_window(self, job_id: str) -> list[Entry]:
        found: list[Entry] = []
        position, end = self._window.first_position - 1, self._window.durable_position
        while position < end:
            position = max(position, self._window.first_position - 1)  # the window moves while other tasks run
            events = self._window.after(position, _STEP_EVENTS)
            found += [entry for at, event in events for entry in about(at, event, job_id)]
            position += _STEP_EVENTS
            await asyncio.sleep(0)
        return found

    async def _in_journal(self, walk: JournalWalk[list[Entry]]) -> list[Entry]:
        found: list[Entry] = []
        try:
            while steps := await asyncio.to_thread(walk.take, 1):
                found += steps[0]
        finally:
            walk.close()
        return found

    async def _parts(self, after: int) -> AsyncGenerator[FeedPart, None]:
        """Yields an empty part with the position, then the durable events past it."""
        yield FeedPart([], after)
        async with aclosing(self._events(after)) as slices:
            async for events in slices:
                for part in parts_of(events):
                    yield part
                    await asyncio.sleep(0)  # a fast reader must not block the loop

    async def _events(self, after: int) -> AsyncGenerator[list[At], None]:
        window = self._window
        while after < window.durable_position:
            if after + 1 >= window.first_position:
                events = window.after(after, _SLICE_EVENTS)
                after = events[-1][0]
                yield events
            else:
                async with aclosing(self._old_events(after)) as slices:
                    async for events in slices:
                        after = events[-1][0]
                        yield events

    async def _old_events(self, after: int) -> AsyncGenerator[list[At], None]:
        """Yields events from the journal, until the window contains the next one or the reader takes too long."""
        if self._past is None:
            raise self._removed(after)
        walk = self._past.walk(after)
        loop = asyncio.get_running_loop()
        try:
            while events := await asyncio.to_thread(walk.take, _SLICE_EVENTS):
                patience = loop.call_later(_PATIENCE_S, walk.close)
                try:
                    yield events
                finally:
                    patience.cancel()
                if events[-1][0] + 1 >= self._window.first_position:
                    return
        finally:
            walk.close()

    def _checked(self, after: int) -> int:
        if after < 0:
            raise InvalidArgumentError(f"expected a position from 0 on, got {after}", reason="POSITION_INVALID")
        end = self._window.durable_position
        if after > end:
            message = f"position {after} does not exist yet; the journal ends with position {end}"
            raise NotFoundError(message, reason="POSITION_UNKNOWN")
        if after + 1 < self._first_position:
            raise self._removed(after)
        self._refuse_if_closed()
        return after

    @property
    def _first_position(self) -> int:
        return self._window.first_position if self._past is None else self._past.first_position

    def _removed(self, after: int) -> NotFoundError:
        first = self._first_position
        message = f"the events after position {after} are no longer kept; the oldest position is {first}"
        return NotFoundError(message, reason="POSITION_REMOVED")

    def _refuse_if_closed(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _wake(self) -> None:
        for news in self._readers:
            news.set()


def parts_of(events: list[At]) -> Iterator[FeedPart]:
    """Converts events into entries of the jobs that they name; the last part ends with the last event."""
    found: list[Entry] = []
    size = 0
    for position, event in events:
        more = list(entries(position, event))
        found += more
        size += sum([_ENTRY_CHARS + len(entry.reason) for entry in more])
        if size >= _PART_CHARS:
            yield FeedPart(found, position)
            found, size = [], 0
    yield FeedPart(found, events[-1][0])
