"""The event stream: shared frames for equal filters, and no repeated entries."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import msgspec
import pytest

from holdfast.core.history import Entry
from holdfast.errors import NotFoundError, UnavailableError
from holdfast.ports import FeedApi, FeedPart
from holdfast.server.http.event_stream import (
    UNSENT_BYTES_MAX,
    EncodedFeedPart,
    FeedBudget,
    FeedListener,
    FeedReader,
    WantedEntries,
    chunk,
)

PART = FeedPart(
    [
        Entry(5, 0, "a", "submitted", "QUEUED"),
        Entry(6, 0, "b", "submitted", "QUEUED"),
        Entry(7, 0, "a", "granted", "RUNNING"),
    ],
    8,
)


class Line:
    """A connection that records what is written."""

    def __init__(self, unsent: int = 0) -> None:
        self.unsent = unsent
        self.sent: list[bytes] = []
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.is_aborted = True


def listener(wanted: WantedEntries | None = None, position: int = 0, line: Line | None = None) -> FeedListener:
    one = FeedListener(line or Line(), wanted or WantedEntries(), has_entries=True, has_stats=False)
    one.position = position
    return one


def jobs_in(frame: bytes) -> list[tuple[int, str]]:
    """Returns the positions and jobs of a frame; an empty list for an empty frame."""
    if not frame:
        return []
    text = frame.split(b"\r\n")[1]
    assert text.startswith(b"id: 8\nevent: entries\ndata: ")
    entries = msgspec.json.decode(text.split(b"data: ", 1)[1])
    return [(entry["position"], entry["job_id"]) for entry in entries]


def test_listeners_with_equal_filters_share_the_encoded_bytes() -> None:
    """Listeners with equal filters get the same bytes, which are encoded once."""
    frames = EncodedFeedPart(PART)
    assert frames.of(listener()) is frames.of(listener())
    only = WantedEntries(jobs=frozenset({"a"}))
    assert frames.of(listener(only)) is frames.of(listener(WantedEntries(jobs=frozenset({"a"}))))


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (WantedEntries(), [(5, "a"), (6, "b"), (7, "a")]),
        (WantedEntries(jobs=frozenset({"a"})), [(5, "a"), (7, "a")]),
        (WantedEntries(jobs=frozenset({"b", "a"}), what=frozenset({"submitted"})), [(5, "a"), (6, "b")]),
        (WantedEntries(states=frozenset({"RUNNING"})), [(7, "a")]),
        (WantedEntries(worker="w"), []),
        (WantedEntries(jobs=frozenset({"c"})), []),
    ],
)
def test_filters_choose_entries_in_order(wanted: WantedEntries, found: list[tuple[int, str]]) -> None:
    """A filter selects entries in order, and a frame without entries is empty."""
    assert jobs_in(EncodedFeedPart(PART).of(listener(wanted))) == found


@pytest.mark.parametrize(("position", "count"), [(0, 3), (4, 3), (5, 2), (6, 1), (7, 0)])
def test_listener_gets_only_entries_after_its_position(position: int, count: int) -> None:
    """A listener whose position is in the middle of a part gets only the entries after it."""
    assert len(jobs_in(EncodedFeedPart(PART).of(listener(position=position)))) == count


def test_listener_that_keeps_too_much_is_cut_off() -> None:
    """A listener with too many unsent bytes is disconnected, and nothing more is written to it."""
    line = Line(UNSENT_BYTES_MAX + 1)
    one = listener(line=line)
    one.write(chunk(b"x"))
    line.unsent = 0
    one.write(chunk(b"y"))
    assert (line.sent, line.is_aborted, one.ended.is_set()) == ([], True, True)


async def test_share_of_time_is_kept_by_all_together() -> None:
    """All listeners share one time budget, so that two rests of equal length follow one another."""
    pace, loop = FeedBudget(0.05), asyncio.get_running_loop()
    start = loop.time()
    await asyncio.gather(pace.rest(0.001), pace.rest(0.001))
    assert loop.time() - start >= 0.039


class FailingFeed:
    """A feed that yields its position and then fails when the test says so."""

    def __init__(self) -> None:
        self.fails = asyncio.Event()
        self.begun = 0

    async def feed(self, after: int | None) -> AsyncIterator[FeedPart]:
        del after
        self.begun += 1
        yield FeedPart([], 8)
        await self.fails.wait()
        raise NotFoundError("it is no longer kept", reason="POSITION_REMOVED")


async def test_new_listener_starts_another_read_after_the_feed_failed() -> None:
    """After the feed failed, a new listener starts another read although the earlier listeners have not left yet."""
    feed = FailingFeed()
    teller = FeedReader(cast("FeedApi", feed), None)
    first, second = listener(), listener()
    await teller.join(first, None)
    feed.fails.set()
    await first.ended.wait()
    feed.fails.clear()
    await teller.join(second, None)
    teller.leave(first)
    assert (feed.begun, second.is_present, second.position) == (2, True, 8)
    assert not second.ended.is_set()
    await teller.close()


async def test_listener_is_refused_when_the_feed_cannot_be_read() -> None:
    """A listener is refused if the feed cannot be read, and gets no invented position."""

    class Broken(FailingFeed):
        async def feed(self, after: int | None) -> AsyncIterator[FeedPart]:
            if after is None:
                raise NotFoundError("it is no longer kept", reason="POSITION_REMOVED")
            yield FeedPart([], after)

    with pytest.raises(UnavailableError):
        await FeedReader(cast("FeedApi", Broken()), None).join(listener(), None)


class SilentFeed:
    """A feed that yields nothing."""

    def __init__(self) -> None:
        self.is_read = asyncio.Event()
        self.is_left = asyncio.Event()

    async def feed(self, _: int | None) -> AsyncIterator[FeedPart]:
        self.is_read.set()
        try:
            await asyncio.Event().wait()
            yield PART
        finally:
            self.is_left.set()


async def test_feed_is_closed_when_its_listener_leaves_during_the_start() -> None:
    """If a listener leaves while the feed starts, the feed is closed."""
    feed = SilentFeed()
    teller = FeedReader(cast("FeedApi", feed), None)
    joining = asyncio.create_task(teller.join(listener(), None))
    await feed.is_read.wait()
    joining.cancel()
    async with asyncio.timeout(30):
        await feed.is_left.wait()
    await teller.close()


async def test_numbers_wait_for_the_head_of_the_answer() -> None:
    """Statistics are written only after the head of the response, also while a slow feed starts."""
    line, asked = Line(), asyncio.Queue[None]()
    one = FeedListener(line, WantedEntries(), has_entries=False, has_stats=True)

    async def stats() -> bytes:
        asked.put_nowait(None)
        return b"{}"

    early = FeedListener(Line(), WantedEntries(), has_entries=False, has_stats=True)
    early.has_begun = True
    teller = FeedReader(cast("FeedApi", SilentFeed()), stats)
    joining = [asyncio.create_task(teller.join(each, None)) for each in (one, early)]
    await asked.get()
    await asked.get()  # the statistics of the first round were written
    assert line.sent == []
    one.has_begun = True
    await asked.get()
    await asked.get()
    assert line.sent != []
    for each in joining:
        each.cancel()
    await asyncio.wait(joining)
    await teller.close()
