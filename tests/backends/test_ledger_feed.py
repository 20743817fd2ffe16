"""The ledger's feed across window and journal: slow readers, small windows, removed segments, readers that leave."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path

import pytest

from holdfast.core.history import Entry, entries
from holdfast.core.model import Template
from holdfast.errors import InvalidArgumentError, NotFoundError, UnavailableError
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.file import FileJournal
from holdfast.journal.os_disk import OsDisk
from holdfast.ledger import time_travel
from holdfast.ledger.event_window import EventWindow, WindowConfig
from holdfast.ledger.feed_api import LedgerFeed
from holdfast.ledger.job_index import JobIndex
from holdfast.ledger.journal_history import JournalHistory
from holdfast.ports import FeedPart, JobDraft
from holdfast.settings import MEMORY, Settings
from holdfast.topologies.embedded.served_ledger import ServedLedger
from tests.e2e.wait_until import eventually


class Tiny:
    """A running ledger, and a feed of it with a very small window."""

    def __init__(self, serving: ServedLedger, feed: LedgerFeed, disk: OsDisk | None) -> None:
        self.serving = serving
        self.feed = feed
        self.disk = disk
        self.jobs = serving.ports.jobs

    async def submit(self, count: int = 1) -> list[str]:
        """Submits jobs, each in a frame of its own."""
        drafts = [JobDraft(payload=bytes(200))]
        return [(await self.jobs.submit([Template("t")], drafts)).job_ids[0] for _ in range(count)]

    def truth(self) -> list[Entry]:
        """Returns all entries of the journal."""
        assert self.disk is not None, "a ledger in memory has no journal"
        past = time_travel.all_events(DirectoryArchive(self.disk))
        return [entry for position, event in past for entry in entries(position, event)]

    def pins(self) -> list[str]:
        """Returns the names of the pins on disk."""
        assert self.disk is not None, "a ledger in memory has no pins"
        return [name for name in self.disk.names() if name.startswith("pin-")]


async def opened(folder: Path | None, window: WindowConfig, **settings: int) -> Tiny:
    """Starts a ledger on disk or in memory, with a feed of the given window."""
    data = MEMORY if folder is None else str(folder)
    serving = ServedLedger(Settings(data=data, **settings))  # type: ignore[arg-type]
    if folder is None:
        serving.open_at_once()
    else:
        await serving.open()
    await serving.ports.admin.stats()  # makes the events so far durable
    core = serving.core
    past = None
    if folder and isinstance(core.journal, FileJournal):
        past = JournalHistory(core.journal, OsDisk(folder), JobIndex(core.journal, OsDisk(folder)))
    late = EventWindow(core.ledger.position, window)
    core.coordinator.observers.append(late)
    return Tiny(serving, LedgerFeed(late, past), OsDisk(folder) if folder else None)


@pytest.fixture
async def tiny(tmp_path: Path) -> AsyncIterator[Tiny]:
    """On disk, with a window of three events and small segments."""
    tiny = await opened(tmp_path / "data", WindowConfig(events_max=3), segment_bytes=65_536)
    yield tiny
    await tiny.serving.close()


async def told(feed: AsyncIterator[FeedPart], until: str) -> list[Entry]:
    """Reads the feed up to the first entry of the given job."""
    found: list[Entry] = []
    async with asyncio.timeout(30):
        async for part in feed:
            found += part.entries
            if any(entry.job_id == until for entry in part.entries):
                return found
    raise AssertionError("expected the feed to go on, but it ended")


async def test_feed_reads_events_the_window_has_dropped_from_the_journal(tiny: Tiny) -> None:
    """A feed from position 0 sends every event once and in order, first from the journal and then from the window."""
    ids = await tiny.submit(50)
    async with aclosing(tiny.feed.feed(0)) as feed:
        assert await told(feed, ids[-1]) == tiny.truth()
        more = await tiny.submit(10)
        assert [entry.job_id for entry in await told(feed, more[-1])] == more


async def test_feed_goes_on_from_the_middle_of_a_frame(tiny: Tiny) -> None:
    """A feed can start at a position between two events of the same frame."""
    await asyncio.gather(*(tiny.submit(2) for _ in range(20)))
    (last,) = await tiny.submit()
    truth = tiny.truth()
    frames = [frame.count for frame in tiny.serving.core.journal.replay(0)]
    assert max(frames) > 1
    for after in range(truth[-1].position):
        async with aclosing(tiny.feed.feed(after)) as feed:
            assert await told(feed, last) == [entry for entry in truth if entry.position > after]


async def test_slow_reader_goes_back_to_the_journal(tiny: Tiny) -> None:
    """A reader that repeatedly falls behind the window receives every event exactly once."""
    async with aclosing(tiny.feed.feed(None)) as feed:
        heard: list[str] = []
        await anext(feed)
        ids: list[str] = []
        for _ in range(10):
            ids += await tiny.submit(8)
            heard += [entry.job_id for entry in (await anext(feed)).entries]
        heard += [entry.job_id for entry in await told(feed, ids[-1])] if ids[-1] not in heard else []
        assert heard == ids


async def test_readers_at_work_while_others_write_hear_the_same(tiny: Tiny) -> None:
    """Several readers that start at different positions each receive exactly the rest of the journal."""
    await tiny.submit(30)
    last = "00000000-0000-4000-8000-00000000beef"

    async def read(after: int) -> list[Entry]:
        async with aclosing(tiny.feed.feed(after)) as feed:
            return await told(feed, last)

    reading = [asyncio.create_task(read(after)) for after in (0, 7, 25)]
    await tiny.submit(60)
    await tiny.jobs.submit([Template("t")], [JobDraft(id=last)])
    heard = await asyncio.gather(*reading)
    truth = tiny.truth()
    assert heard == [[entry for entry in truth if entry.position > after] for after in (0, 7, 25)]


async def test_stalled_reader_does_not_make_the_window_exceed_its_bounds(tiny: Tiny) -> None:
    """A reader that has stopped reading does not make the window keep more events."""
    async with aclosing(tiny.feed.feed(None)) as feed:
        await anext(feed)
        await tiny.submit(40)
        assert tiny.feed._window.durable_position - tiny.feed._window.first_position < 3


async def test_reader_that_leaves_gives_its_pin_back(tiny: Tiny) -> None:
    """A feed that is closed in the middle of the journal removes its pin."""
    await tiny.submit(600)
    feed = tiny.feed.feed(0)
    await anext(feed)
    await anext(feed)
    assert len(tiny.pins()) == 1
    await feed.aclose()
    assert tiny.pins() == []


async def test_reader_that_is_canceled_gives_its_pin_back(tiny: Tiny) -> None:
    """A task that is canceled while the feed reads the journal leaves no pin."""
    await tiny.submit(300)
    for _ in range(5):
        reading = asyncio.create_task(told(tiny.feed.feed(0), "nobody"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
    await asyncio.to_thread(eventually, lambda: not tiny.pins(), what="the end of the thread that was reading")


async def test_reader_that_waits_too_long_gives_its_pin_back(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """A feed removes its pin when its reader pauses too long, and continues without a gap when the reader resumes."""
    monkeypatch.setattr("holdfast.ledger.feed_api._PATIENCE_S", 0.0)
    ids = await tiny.submit(600)
    async with aclosing(tiny.feed.feed(0)) as feed:
        await anext(feed)
        first = await anext(feed)
        await asyncio.to_thread(eventually, lambda: not tiny.pins(), what="the pin's timeout")
        rest = await told(feed, ids[-1])
        assert first.entries + rest == tiny.truth()


async def test_deleted_past_is_not_found(tiny: Tiny) -> None:
    """A feed answers POSITION_REMOVED for a removed position and POSITION_UNKNOWN for one that does not exist."""
    await tiny.submit(600)
    journal = tiny.serving.core.journal
    assert journal.remove_segments(journal.segments()[-1].first_position - 1)
    with pytest.raises(NotFoundError) as removed:
        await anext(tiny.feed.feed(0))
    assert removed.value.reason == "POSITION_REMOVED"
    with pytest.raises(NotFoundError) as unknown:
        await anext(tiny.feed.feed(10_000))
    assert unknown.value.reason == "POSITION_UNKNOWN"
    with pytest.raises(InvalidArgumentError):
        await anext(tiny.feed.feed(-1))


async def test_journal_keeps_segments_that_a_feed_still_reads(tiny: Tiny) -> None:
    """While a feed reads the journal, the journal removes no segment that the feed still needs."""
    ids = await tiny.submit(600)
    journal = tiny.serving.core.journal
    async with aclosing(tiny.feed.feed(0)) as feed:
        await anext(feed)
        await anext(feed)
        assert journal.remove_segments(journal.segments()[-1].first_position - 1) == []
        assert await told(feed, ids[-1])
    assert journal.remove_segments(journal.segments()[-1].first_position - 1)


async def test_history_reads_all_segments(tiny: Tiny) -> None:
    """The history of a job includes events in sealed segments."""
    (first,) = await tiny.submit()
    await tiny.submit(600)
    await tiny.jobs.cancel(first, "")
    assert [entry.what for entry in await tiny.feed.history(first)] == ["submitted", "canceled"]
    assert tiny.pins() == []


@pytest.mark.parametrize("job_id", ["", "nobody", "t", "\ud800"])
async def test_history_of_an_unknown_job_id_is_not_found(tiny: Tiny, job_id: str) -> None:
    """A history request for an empty id, or for text that occurs in frames but is no job id, is not found."""
    await tiny.submit()
    with pytest.raises(NotFoundError):
        await tiny.feed.history(job_id)


async def test_readers_are_told_that_the_server_stops(tiny: Tiny) -> None:
    """A reader that waits for an event gets UnavailableError when the feed closes."""
    feed = tiny.feed.feed(None)
    await anext(feed)
    waiting = asyncio.ensure_future(anext(feed))
    await asyncio.sleep(0)
    tiny.feed.close()
    with pytest.raises(UnavailableError):
        await waiting


async def test_feed_without_a_journal_sends_the_events_of_its_window() -> None:
    """Without a journal, a feed sends every event that is in its window and refuses an older position."""
    tiny = await opened(None, WindowConfig(events_max=5))
    start = tiny.feed._window.durable_position
    ids = await tiny.submit(20)
    with pytest.raises(NotFoundError):
        await anext(tiny.feed.feed(start))
    async with aclosing(tiny.feed.feed(tiny.feed._window.first_position - 1)) as feed:
        assert [entry.job_id for entry in await told(feed, ids[-1])] == ids[-5:]
    assert [entry.what for entry in await tiny.feed.history(ids[-1])] == ["submitted"]
    with pytest.raises(NotFoundError):
        await tiny.feed.history(ids[0])
    await tiny.serving.close()


async def test_slow_reader_of_memory_is_told_that_it_has_missed_something() -> None:
    """Without a journal, a reader that falls behind the window gets POSITION_REMOVED."""
    tiny = await opened(None, WindowConfig(events_max=5))
    async with aclosing(tiny.feed.feed(None)) as feed:
        await anext(feed)
        await tiny.submit(20)
        with pytest.raises(NotFoundError) as caught:
            await anext(feed)
    assert caught.value.reason == "POSITION_REMOVED"
    await tiny.serving.close()


async def test_large_payloads_do_not_stay_in_the_window(tmp_path: Path) -> None:
    """The window is bounded by bytes as well as by events."""
    tiny = await opened(tmp_path / "data", WindowConfig(events_max=1_000, bytes_max=1_000))
    ids = await tiny.submit(20)
    assert tiny.feed._window._bytes <= 1_000
    async with aclosing(tiny.feed.feed(0)) as feed:
        assert [entry.job_id for entry in await told(feed, ids[-1])] == ids
    await tiny.serving.close()
