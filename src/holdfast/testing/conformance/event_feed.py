"""The event feed: all events without a gap, and the history of a job."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from holdfast.core.capabilities import Capability
from holdfast.core.commands import ReportRow
from holdfast.core.failure import Failure
from holdfast.core.history import Entry, attempts
from holdfast.core.lifecycle import CANCELED, FAILED
from holdfast.core.model import FIXED, BackoffRule, Note
from holdfast.errors import NotFoundError
from holdfast.ports import FeedPart
from holdfast.testing.conformance.harness import needs
from holdfast.testing.conformance.workplace import PATIENCE_S, Workplace, soon


class Reader:
    """A reader of the feed, which keeps the entries that it has read."""

    def __init__(self, feed: AsyncIterator[FeedPart]) -> None:
        self._feed: Any = feed
        self.entries: list[Entry] = []
        self.position = -1

    async def hear(self) -> None:
        """Reads the next part, and checks its positions."""
        part = await soon(self._feed)
        assert part.position >= self.position
        assert all(self.position < entry.position <= part.position for entry in part.entries)
        self.entries += part.entries
        self.position = part.position

    async def until(self, job_id: str, what: str) -> None:
        """Reads until there is an entry of this kind about the job."""
        async with asyncio.timeout(PATIENCE_S):
            while not any(entry.job_id == job_id and entry.what == what for entry in self.entries):
                await self.hear()

    def about(self, job_ids: list[str]) -> list[tuple[str, str]]:
        """The entries about these jobs, in order."""
        return [(entry.job_id, entry.what) for entry in self.entries if entry.job_id in job_ids]

    async def close(self) -> None:
        """Closes the feed."""
        await self._feed.aclose()


async def reader(place: Workplace, after: int | None = None) -> Reader:
    """Returns a reader; one from now on has read its first part."""
    one = Reader(place.feed.feed(after))
    if after is None:
        await one.hear()
    return one


class TestFeeding:
    """The feed and the history."""

    @needs(Capability.FEED)
    async def test_feed_from_now_on_sends_later_events_in_order(self, place: Workplace) -> None:
        """A feed from now on has later submits, grants and ends with state, worker and token, and no earlier events."""
        before = await place.submit()
        one = await reader(place)
        hand = await place.worker()
        (early,) = await hand.take()
        await hand.done(early)
        job_id = await place.run(hand)
        await one.until(job_id, "finished")
        assert one.about([job_id]) == [(job_id, "submitted"), (job_id, "granted"), (job_id, "finished")]
        assert (before, "submitted") not in one.about([before])
        granted = next(entry for entry in one.entries if entry.job_id == job_id and entry.what == "granted")
        assert (granted.state, granted.worker) == ("RUNNING", hand.worker_id)
        assert granted.token > early.token
        await one.close()

    @needs(Capability.FEED)
    async def test_feed_can_be_resumed_without_gap_or_repetition(self, place: Workplace) -> None:
        """A reader that resumes from its position receives exactly the entries that it has not read."""
        one = await reader(place)
        first = await place.submit_many(5)
        await one.until(first[-1], "submitted")
        await one.close()
        missed = await place.submit_many(5)
        two = await reader(place, one.position)
        later = await place.submit_many(5)
        await two.until(later[-1], "submitted")
        ids = [*first, *missed, *later]
        assert one.about(ids) + two.about(ids) == [(job_id, "submitted") for job_id in ids]
        await two.close()

    @needs(Capability.FEED)
    async def test_readers_are_told_the_same(self, place: Workplace) -> None:
        """All readers receive the same entries, each at its own pace."""
        one, two = await reader(place), await reader(place)
        ids = await place.submit_many(10)
        for job_id in ids:
            await place.jobs.cancel(job_id, "")
        await one.until(ids[-1], "canceled")
        await two.until(ids[-1], "canceled")
        assert one.about(ids) == two.about(ids) != []
        await one.close()
        await two.close()

    @needs(Capability.FEED)
    async def test_feed_tells_every_job_of_a_large_batch(self, place: Workplace) -> None:
        """Thousands of entries are received in parts, none missing and none twice."""
        one = await reader(place)
        ids = [job_id for _ in range(3) for job_id in await place.submit_many(1_000)]
        await one.until(ids[-1], "submitted")
        assert one.about(ids) == [(job_id, "submitted") for job_id in ids]
        await one.close()

    @needs(Capability.FEED, is_alone=True)
    async def test_feed_from_the_beginning_tells_everything(self, place: Workplace) -> None:
        """A feed from position 0 has the past entries first, and then new ones."""
        ids = await place.submit_many(3)
        one = await reader(place, 0)
        await one.until(ids[-1], "submitted")
        last = await place.submit()
        await one.until(last, "submitted")
        assert [job_id for job_id, _ in one.about([*ids, last])] == [*ids, last]
        await one.close()

    @needs(Capability.FEED)
    async def test_position_that_has_not_come_yet_is_not_found(self, place: Workplace) -> None:
        """A position beyond the end of the journal is not found."""
        with pytest.raises(NotFoundError):
            await soon(place.feed.feed(1 << 60))

    @needs(Capability.HISTORY, Capability.ORDER)
    async def test_history_tells_all_that_happened_to_a_job(self, place: Workplace) -> None:
        """The history has submit, grant, loss, second grant and end in order, and nothing of other jobs."""
        job_id = await place.submit()
        lost = await place.worker("lost")
        await lost.take()
        await lost.session.close()
        hand = await place.worker("kept")
        (lease,) = await hand.take()
        await hand.done(lease)
        await place.run(hand)
        history = await place.feed.history(job_id)
        assert [entry.what for entry in history] == ["submitted", "granted", "lease lost", "granted", "finished"]
        assert {entry.job_id for entry in history} == {job_id}
        assert [entry.worker for entry in history if entry.what == "granted"] == [lost.worker_id, hand.worker_id]

    @needs(Capability.HISTORY)
    async def test_history_has_the_traceback_of_every_failed_attempt(self, place: Workplace) -> None:
        """The history keeps the traceback of a retried attempt as well as that of the last one."""
        job_id = await place.submit(max_attempts=2, backoff=BackoffRule(FIXED, 0, 0))
        hand = await place.worker()
        for number in (1, 2):
            (lease,) = await hand.take()
            output = msgspec.json.encode(Failure("ValueError", f"bad {number}", f"Traceback of attempt {number}"))
            await hand.report(
                ReportRow(job_id, lease.token, FAILED, output, failure_reason=f"ValueError: bad {number}")
            )
        first, last = attempts(await place.feed.history(job_id))
        assert (first.number, first.outcome, first.reason) == (1, "FAILED", "ValueError: bad 1")
        assert (last.number, last.outcome, last.reason) == (2, "FAILED", "ValueError: bad 2")
        assert [first.detail, last.detail] == ["Traceback of attempt 1", "Traceback of attempt 2"]
        assert first.worker == hand.worker_id
        assert 0 < first.started_ms <= first.ended_ms <= last.started_ms <= last.ended_ms

    @needs(Capability.HISTORY, Capability.NOTES)
    async def test_history_keeps_progress_and_log_lines(self, place: Workplace) -> None:
        """Progress and log lines stay in the history of a job after its end."""
        job_id = await place.submit()
        hand = await place.worker()
        (lease,) = await hand.take()
        await hand.session.note([Note(job_id, lease.token, 500, "half", ("a line",))])
        await hand.done(lease)
        said = [(entry.what, entry.reason) for entry in await place.feed.history(job_id)]
        assert ("log", "a line") in said
        assert any(what == "progress" and "half" in words for what, words in said)

    @needs(Capability.HISTORY)
    async def test_history_tells_of_cancels(self, place: Workplace) -> None:
        """A waiting job is canceled at once and a running one after a cancel request, both with the reason."""
        waiting = await place.submit()
        await place.jobs.cancel(waiting, "not needed")
        asked = await place.submit()
        hand = await place.worker()
        (lease,) = await hand.take()
        await place.jobs.cancel(asked, "not needed")
        await hand.report(ReportRow(asked, lease.token, CANCELED))
        ended = await place.feed.history(waiting)
        assert [(entry.what, entry.state) for entry in ended] == [("submitted", "QUEUED"), ("canceled", "CANCELED")]
        assert ended[-1].reason == "not needed"
        stopped = await place.feed.history(asked)
        assert [entry.what for entry in stopped] == ["submitted", "granted", "cancel requested", "finished"]
        assert [entry.state for entry in stopped] == ["QUEUED", "RUNNING", "RUNNING", "CANCELED"]
        assert stopped[2].reason == "not needed"

    @needs(Capability.HISTORY)
    async def test_history_of_a_job_that_runs_ends_with_its_grant(self, place: Workplace) -> None:
        """The history of a running job ends with its grant, which names worker and token."""
        job_id = await place.submit()
        hand = await place.worker()
        (lease,) = await hand.take()
        submitted, granted = await place.feed.history(job_id)
        assert (submitted.what, submitted.worker, submitted.token) == ("submitted", "", 0)
        assert (granted.what, granted.worker, granted.token) == ("granted", hand.worker_id, lease.token)
        assert submitted.position < granted.position
        await hand.done(lease)

    @needs(Capability.HISTORY)
    async def test_history_of_a_job_that_never_was_is_not_found(self, place: Workplace) -> None:
        """The history of an unknown job is not found."""
        with pytest.raises(NotFoundError):
            await place.feed.history("00000000-0000-4000-8000-000000000000")

    @needs(Capability.FEED)
    async def test_refused_report_is_part_of_the_history(self, place: Workplace) -> None:
        """A refused report is kept in the history, with the worker and the reason of the refusal."""
        job_id = await place.submit()
        (lease,) = await (await place.worker("holder")).take()
        await (await place.worker("thief")).done(lease)
        (refused,) = [entry for entry in await place.feed.history(job_id) if entry.what == "report refused"]
        assert (refused.reason, refused.worker) == ("NOT_THE_HOLDER", place.name("thief"))

    @needs(Capability.FEED)
    async def test_feed_closed_early_affects_no_other_reader(self, place: Workplace) -> None:
        """A feed that is closed early affects neither other readers nor the backend."""
        staying = await reader(place)
        async with aclosing(await _leaving(place)):
            ids = await place.submit_many(10)
        await staying.until(ids[-1], "submitted")
        await staying.close()


async def _leaving(place: Workplace) -> Any:  # noqa: ANN401 - an asynchronous generator
    feed = place.feed.feed(None)
    await soon(feed)
    return feed
