"""What listeners are sent: the same bytes for all who want the same, and never what they were told before."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import msgspec
import pytest

from holdfast.core.history import Entry
from holdfast.errors import NotFoundError, UnavailableError
from holdfast.ports import FeedApi, FeedPart
from holdfast.server.http.event_stream import UNSENT_BYTES_MAX, FeedListener, FeedReader, Frames, WantedEntries, chunk
from holdfast.server.http.feed_budget import FeedBudget

PART = FeedPart(
    [
        Entry(5, 0, "a", "submitted", "QUEUED"),
        Entry(6, 0, "b", "submitted", "QUEUED"),
        Entry(7, 0, "a", "granted", "RUNNING"),
    ],
    8,
)


class Line:
    """A connection that keeps what it is sent."""

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
    """Positions and jobs of a frame; nothing of an empty one."""
    if not frame:
        return []
    text = frame.split(b"\r\n")[1]
    assert text.startswith(b"id: 8\nevent: entries\ndata: ")
    entries = msgspec.json.decode(text.split(b"data: ", 1)[1])
    return [(entry["position"], entry["job_id"]) for entry in entries]


def test_all_who_want_the_same_get_the_same_bytes() -> None:
    """It is written once, however many listen."""
    frames = Frames(PART)
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
    """What nobody wants is not sent; an empty frame is nothing."""
    assert jobs_in(Frames(PART).of(listener(wanted))) == found


@pytest.mark.parametrize(("position", "count"), [(0, 3), (4, 3), (5, 2), (6, 1), (7, 0)])
def test_what_was_told_is_not_told_again(position: int, count: int) -> None:
    """Whoever comes from the past into the middle of a part hears the rest of it."""
    assert len(jobs_in(Frames(PART).of(listener(position=position)))) == count


def test_listener_that_keeps_too_much_is_cut_off() -> None:
    """And is written nothing more."""
    line = Line(UNSENT_BYTES_MAX + 1)
    one = listener(line=line)
    one.write(chunk(b"x"))
    line.unsent = 0
    one.write(chunk(b"y"))
    assert (line.sent, line.is_aborted, one.ended.is_set()) == ([], True, True)


async def test_share_of_time_is_kept_by_all_together() -> None:
    """Two who have spent the same wait one after the other, each twenty times as long."""
    pace, loop = FeedBudget(0.05), asyncio.get_running_loop()
    start = loop.time()
    await asyncio.gather(pace.rest(0.001), pace.rest(0.001))
    assert loop.time() - start >= 0.039


class FailingFeed:
    """A feed that tells its position and then fails, as often as it is asked to."""

    def __init__(self) -> None:
        self.fails = asyncio.Event()
        self.begun = 0

    async def feed(self, after: int | None) -> AsyncIterator[FeedPart]:
        del after
        self.begun += 1
        yield FeedPart([], 8)
        await self.fails.wait()
        raise NotFoundError("it is no longer kept", reason="POSITION_REMOVED")


async def test_who_comes_while_others_are_sent_away_is_told() -> None:
    """Reading that failed is begun anew for the next one, though not everybody has left."""
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


async def test_who_comes_when_nothing_can_be_read_is_refused() -> None:
    """Nobody is told a position that there never was."""

    class Broken(FailingFeed):
        async def feed(self, after: int | None) -> AsyncIterator[FeedPart]:
            if after is None:
                raise NotFoundError("it is no longer kept", reason="POSITION_REMOVED")
            yield FeedPart([], after)

    with pytest.raises(UnavailableError):
        await FeedReader(cast("FeedApi", Broken()), None).join(listener(), None)


class SilentFeed:
    """A feed that tells nothing."""

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


async def test_who_goes_away_before_anything_is_told_leaves_nothing_behind() -> None:
    """Nothing is read for somebody who left while the feed began."""
    feed = SilentFeed()
    teller = FeedReader(cast("FeedApi", feed), None)
    joining = asyncio.create_task(teller.join(listener(), None))
    await feed.is_read.wait()
    joining.cancel()
    async with asyncio.timeout(30):
        await feed.is_left.wait()
    await teller.close()


async def test_numbers_wait_for_the_head_of_the_answer() -> None:
    """While a slow feed begins, no statistics are written before the head; afterwards they are."""
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
    await asked.get()  # the numbers of the first time were written
    assert line.sent == []
    one.has_begun = True
    await asked.get()
    await asked.get()
    assert line.sent != []
    for each in joining:
        each.cancel()
    await asyncio.wait(joining)
    await teller.close()
