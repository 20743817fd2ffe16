"""Searches, which miss no job, and pages."""

import pytest

from holdfast.core.lifecycle import CANCELED, DONE, QUEUED, RUNNING, State
from holdfast.core.model import Extra
from holdfast.errors import InvalidArgumentError
from holdfast.ports import JobQuery, JobView
from holdfast.testing.conformance.workplace import Workplace


async def found(place: Workplace, query: JobQuery, size: int = 50) -> list[str]:
    """Returns the ids of all jobs that match, read part by part."""
    jobs: list[JobView] = []
    cursor = ""
    while True:
        part = await place.jobs.find(query, cursor, size)
        assert len(part.jobs) <= size
        jobs += part.jobs
        cursor = part.cursor
        if not cursor:
            return [job.id for job in jobs]


class TestFinding:
    """Searches by the fields of jobs, and pages of all jobs."""

    async def test_search_finds_all_jobs_newest_first(self, place: Workplace) -> None:
        """All jobs of a queue are found, newest first by default and oldest first on request."""
        ids = [await place.submit() for _ in range(5)]
        newest = await found(place, JobQuery(queue=place.queue))
        oldest = await found(place, JobQuery(queue=place.queue, oldest_first=True))
        assert sorted(newest) == sorted(oldest) == sorted(ids)
        times = [(await place.jobs.get(job_id)).created_ms for job_id in newest]
        assert times == sorted(times, reverse=True)
        times = [(await place.jobs.get(job_id)).created_ms for job_id in oldest]
        assert times == sorted(times)

    async def test_search_by_state(self, place: Workplace) -> None:
        """Only jobs in one of the given states are found."""
        hand = await place.worker(slots=2)
        done = await place.run(hand)
        running = await place.submit()
        await hand.take()
        queued = await place.submit()
        query = JobQuery(queue=place.queue)
        for states, expected in (({DONE}, [done]), ({RUNNING}, [running]), ({QUEUED}, [queued]), ({CANCELED}, [])):
            wanted = JobQuery(frozenset(State(state) for state in states), place.queue)
            assert await found(place, wanted) == expected
        assert len(await found(place, query)) == 3

    async def test_search_by_type(self, place: Workplace) -> None:
        """Jobs of another type in the same queue are not found."""
        await place.submit(type=place.name("other"))
        mine = await place.submit()
        assert await found(place, JobQuery(queue=place.queue, type=place.type)) == [mine]

    async def test_search_by_labels_wants_all_of_them(self, place: Workplace) -> None:
        """A job that has only some of the labels, or another value, does not match."""
        both = await place.submit(extra=Extra(labels=(("a", "1"), ("b", "2"))))
        await place.submit(extra=Extra(labels=(("a", "1"),)))
        await place.submit(extra=Extra(labels=(("a", "1"), ("b", "3"))))
        await place.submit()
        query = JobQuery(queue=place.queue, labels={"a": "1", "b": "2"})
        assert await found(place, query) == [both]
        assert len(await found(place, JobQuery(queue=place.queue, labels={"a": "1"}))) == 3

    async def test_search_by_time_of_creation(self, place: Workplace) -> None:
        """A search finds jobs created from a given time on, and before a given time."""
        job_id = await place.submit()
        at_ms = (await place.jobs.get(job_id)).created_ms
        assert await found(place, JobQuery(queue=place.queue, created_from_ms=at_ms)) == [job_id]
        assert await found(place, JobQuery(queue=place.queue, created_before_ms=at_ms + 1)) == [job_id]
        assert await found(place, JobQuery(queue=place.queue, created_from_ms=at_ms + 1)) == []
        assert await found(place, JobQuery(queue=place.queue, created_before_ms=at_ms)) == []

    async def test_search_for_nothing_that_is_there_ends(self, place: Workplace) -> None:
        """A search without matches comes to an end."""
        assert await found(place, JobQuery(queue=place.name("nobody"))) == []

    @pytest.mark.parametrize("oldest_first", [False, True])
    async def test_parts_of_a_search_miss_nothing_and_repeat_nothing(
        self,
        place: Workplace,
        oldest_first: bool,  # noqa: FBT001 - a parameter of a test
    ) -> None:
        """A search in parts of three finds every job of one batch (of one millisecond) once."""
        ids = await place.submit_many(20)
        query = JobQuery(queue=place.queue, oldest_first=oldest_first)
        assert sorted(await found(place, query, size=3)) == sorted(ids)

    async def test_search_finds_jobs_once_during_submits_and_changes(self, place: Workplace) -> None:
        """Jobs that exist when a search begins are found once, although new jobs are submitted and some change."""
        ids = await place.submit_many(9)
        query = JobQuery(queue=place.queue)
        part = await place.jobs.find(query, "", 4)
        await place.submit_many(5)
        await place.jobs.cancel(part.jobs[0].id, "")
        seen = [job.id for job in part.jobs]
        while part.cursor:
            part = await place.jobs.find(query, part.cursor, 4)
            seen += [job.id for job in part.jobs]
        assert len(seen) == len(set(seen))
        assert set(ids) <= set(seen)

    @pytest.mark.parametrize("cursor", ["x", "!!!", "AAAA", "=", "é", "a" * 10_000])
    async def test_cursor_that_no_search_returned_is_refused(self, place: Workplace, cursor: str) -> None:
        """A text that no search returned as a cursor is refused."""
        with pytest.raises(InvalidArgumentError) as caught:
            await place.jobs.find(JobQuery(queue=place.queue), cursor, 10)
        assert caught.value.reason == "CURSOR_INVALID"

    async def test_cursor_of_another_search_is_refused(self, place: Workplace) -> None:
        """A cursor is refused in any search but its own."""
        await place.submit_many(3)
        part = await place.jobs.find(JobQuery(queue=place.queue), "", 1)
        assert part.cursor
        with pytest.raises(InvalidArgumentError) as caught:
            await place.jobs.find(JobQuery(queue=place.queue, oldest_first=True), part.cursor, 1)
        assert caught.value.reason == "CURSOR_INVALID"

    @pytest.mark.parametrize("newest_first", [False, True])
    async def test_pages_are_in_order_of_creation(
        self,
        place: Workplace,
        newest_first: bool,  # noqa: FBT001 - a parameter of a test
    ) -> None:
        """Pages are sorted by creation time, and by ascending id within a millisecond in both directions."""
        await place.submit_many(5)
        page = await place.jobs.page([], 0, 100, newest_first=newest_first)
        places = [((-job.created_ms if newest_first else job.created_ms), job.id) for job in page.jobs]
        assert places == sorted(places)

    async def test_pages_follow_each_other(self, place: Workplace) -> None:
        """A page begins where the previous one ended, and tells whether more jobs follow."""
        ids = set(await place.submit_many(5))
        whole = await place.jobs.page([QUEUED], 0, 5, newest_first=True)
        first = await place.jobs.page([QUEUED], 0, 3, newest_first=True)
        second = await place.jobs.page([QUEUED], 3, 2, newest_first=True)
        assert [job.id for job in first.jobs + second.jobs] == [job.id for job in whole.jobs]
        # Jobs of other tests may have a slightly later creation time, by another clock.
        assert ids <= {job.id for job in (await place.jobs.page([QUEUED], 0, 100, newest_first=True)).jobs}
        assert first.has_more

    async def test_page_past_the_end_is_empty(self, place: Workplace) -> None:
        """An offset beyond the last job, however large, returns no jobs and no error."""
        await place.submit()
        for newest_first in (True, False):
            page = await place.jobs.page([], 10**19 - 1, 50, newest_first=newest_first)
            assert (page.jobs, page.has_more) == ([], False)
