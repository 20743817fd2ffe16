"""`FeedApi` over a coordinator in this process: from its window of late events, and for what is older its journal.

Invariants: every part begins where the one before it ended; only durable events are told; a reader that is slow, or
gone, holds no events in memory, and no file for longer than it takes to read it.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Self

from holdfast.core.history import Entry, about, entries
from holdfast.errors import HoldfastError, InvalidArgumentError, NotFoundError
from holdfast.ledger.coordinator import STOPPING, Coordinator
from holdfast.ledger.event_window import MEMORY_WINDOW, At, EventWindow, JournalPast, JournalWalk, WindowConfig
from holdfast.ledger.time_travel import no_history
from holdfast.ports import FeedPart

#: Events looked at together, and the size from which on a part is told: neither a message nor a turn may grow large.
_SLICE_EVENTS = 256
_PART_CHARS = 128 * 1024
#: About what an entry has besides its reason.
_ENTRY_CHARS = 200
#: Events that a history looks at before it lets others go on.
_STEP_EVENTS = 16
#: After so many positions that say nothing of any job, the position alone is told: it is where to go on from.
_SILENT_POSITIONS = 1_000
#: How long a reader may keep files and pins without asking for the next part.
_PATIENCE_S = 10.0


class LedgerFeed:
    """Everything that happens, and everything that happened to a job."""

    def __init__(self, window: EventWindow, past: JournalPast | None) -> None:
        """Without a journal on disk the window is all there is."""
        self._window = window
        self._past = past
        self._readers: set[asyncio.Event] = set()
        self._failure: HoldfastError | None = None
        window.listeners.add(self._wake)

    @classmethod
    def over(cls, coordinator: Coordinator, past: JournalPast | None) -> Self:
        """A feed of all that a coordinator does from now on, and of the journal that it writes."""
        ledger = coordinator.ledger
        config = MEMORY_WINDOW if past is None else WindowConfig()
        window = EventWindow(ledger.position, config, ledger.book.bytes_held)
        coordinator.observers.append(window)
        return cls(window, past)

    def close(self) -> None:
        """The coordinator stops: every reader is told, and goes on elsewhere from its position."""
        self._failure = STOPPING.error()
        self._wake()

    async def feed(self, after: int | None) -> AsyncGenerator[FeedPart, None]:
        """The first part comes at once, empty if there is nothing yet: from its position on, nothing is missed."""
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
        """From the journal, in a thread; each step lets the loop go on."""
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
            position = max(position, self._window.first_position - 1)  # it moves on while others are served
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
        """What is durable past a position by now; nothing but the position if that is nothing."""
        yield FeedPart([], after)
        async with aclosing(self._events(after)) as slices:
            async for events in slices:
                for part in parts_of(events):
                    yield part
                    await asyncio.sleep(0)  # a reader that is never full must not keep the loop

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
        """From the journal, until the window has what comes next or the reader takes too long."""
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
            message = f"position {after} is not there yet; the journal ends with position {end}"
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
        message = f"what came after position {after} is no longer kept; the oldest position that is, is {first}"
        return NotFoundError(message, reason="POSITION_REMOVED")

    def _refuse_if_closed(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _wake(self) -> None:
        for news in self._readers:
            news.set()


def parts_of(events: list[At]) -> Iterator[FeedPart]:
    """What these events mean for the jobs that they name; the last part ends with the last of them."""
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
