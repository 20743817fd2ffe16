"""The feed reads old events, and the history of a job, from any engine behind the port `PastEvents`."""

from collections.abc import Generator
from contextlib import aclosing

import pytest

from holdfast.core.history import Entry
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.errors import NotFoundError
from holdfast.journal.memory import MemoryJournal
from holdfast.ledger import time_travel
from holdfast.ledger.event_window import EventWindow, WindowConfig
from holdfast.ledger.feed_api import LedgerFeed
from holdfast.ledger.past_events import At, JournalWalk
from tests.unit.journal.memory_archive import MemoryArchive
from tests.unit.ledger.test_archives import fill

JOBS = 20


class MemoryPast:
    """The past events of a journal in memory, by its archive."""

    def __init__(self, journal: MemoryJournal) -> None:
        self._archive = MemoryArchive(journal)

    @property
    def first_position(self) -> int:
        return self._archive.view().first_position

    def walk(self, after: int) -> JournalWalk[At]:
        return JournalWalk(self._events(after))

    def history(self, job_id: str) -> JournalWalk[list[Entry]]:
        return JournalWalk([entry] for entry in time_travel.about(self._archive.view().frames(), job_id))

    def _events(self, after: int) -> Generator[At, None, None]:
        yield from time_travel.events_of(self._archive.view().frames(after), after)


@pytest.fixture
def past() -> tuple[MemoryJournal, MemoryPast]:
    """A journal without files, whose events a window has not seen."""
    journal = MemoryJournal()
    fill(journal, Ledger(LedgerConfig()), 0, JOBS)
    return journal, MemoryPast(journal)


async def test_feed_reads_old_events_of_any_engine(past: tuple[MemoryJournal, MemoryPast]) -> None:
    """Events before the window come from the engine, in order and once."""
    journal, events = past
    feed = LedgerFeed(EventWindow(journal.end_position, WindowConfig()), events)
    found: list[Entry] = []
    async with aclosing(feed.feed(0)) as parts:
        async for part in parts:
            found += part.entries
            if part.position == journal.end_position:
                break
    assert [entry.position for entry in found] == list(range(1, 2 * JOBS + 1))


async def test_history_of_any_engine_is_read(past: tuple[MemoryJournal, MemoryPast]) -> None:
    """The history of a job comes from the engine; the error for an unknown job names its first position."""
    journal, events = past
    feed = LedgerFeed(EventWindow(journal.end_position, WindowConfig()), events)
    assert [entry.what for entry in await feed.history("job-7")] == ["submitted", "granted"]
    with pytest.raises(NotFoundError, match="reaches back to position 1"):
        await feed.history("nobody")


async def test_feed_of_removed_events_is_refused(past: tuple[MemoryJournal, MemoryPast]) -> None:
    """A reader whose position the engine has removed gets an error with the oldest position."""
    journal, events = past
    journal.remove_segments(6)
    feed = LedgerFeed(EventWindow(journal.end_position, WindowConfig()), events)
    with pytest.raises(NotFoundError, match="oldest position is 7"):
        await anext(feed.feed(0))
    with pytest.raises(NotFoundError):
        events.walk(0).take(1)
