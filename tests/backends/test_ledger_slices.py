"""Searches and purges of the ledger run in slices: they end, they miss nothing, and other commands run between them."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast import limits
from holdfast.core.lifecycle import CANCELED, QUEUED, State
from holdfast.core.model import Extra, Template
from holdfast.errors import InvalidArgumentError, UnavailableError
from holdfast.ledger.search import cursor_of, place_of
from holdfast.ports import JobDraft, JobQuery
from holdfast.settings import MEMORY, Settings
from holdfast.topologies.embedded.served_ledger import ServedLedger


@pytest.fixture
async def serving() -> AsyncIterator[ServedLedger]:
    """A ledger in memory."""
    serving = ServedLedger(Settings(data=MEMORY))
    serving.open_at_once()
    yield serving
    await serving.close()


async def fill(serving: ServedLedger, batches: int, queue: str = "many") -> None:
    """Submits batches of jobs."""
    for _ in range(batches):
        await serving.ports.jobs.submit([Template("t", queue)], [JobDraft()] * limits.BATCH_JOBS_MAX)


async def test_search_gives_up_for_now_and_goes_on(serving: ServedLedger) -> None:
    """A long search returns an empty page with a cursor before its end, and the following pages find the job."""
    jobs = serving.ports.jobs
    extra = Extra(labels=(("needle", "yes"),))
    needle = (await jobs.submit([Template("t")], [JobDraft(extra=extra)])).job_ids
    await fill(serving, 150)
    query, cursor, found, parts = JobQuery(labels={"needle": "yes"}), "", list[str](), 0
    while parts == 0 or cursor:
        part = await jobs.find(query, cursor, 10)
        found += [job.id for job in part.jobs]
        cursor, parts = part.cursor, parts + 1
    assert (found, parts > 1) == (needle, True)


async def test_others_are_served_between_the_slices_of_a_search(serving: ServedLedger) -> None:
    """A submit that arrives during a long search is answered before the search ends."""
    jobs = serving.ports.jobs
    await fill(serving, 90)
    search = asyncio.create_task(jobs.find(JobQuery(type="nothing"), "", 10))
    await asyncio.sleep(0)
    await jobs.submit([Template("t")], [JobDraft()])
    assert not search.done()
    assert (await search).jobs == []


async def test_others_are_served_between_the_slices_of_a_purge(serving: ServedLedger) -> None:
    """A purge cancels all waiting jobs of its queue, and jobs submitted while it runs stay QUEUED."""
    jobs = serving.ports.jobs
    await fill(serving, 20)
    await fill(serving, 1, "other")
    purge = asyncio.create_task(serving.ports.admin.purge("many", "enough"))
    late: list[str] = []
    while not purge.done():
        late += (await jobs.submit([Template("t", "many")], [JobDraft()])).job_ids
    assert len(late) > 1
    assert await purge + len([1 for one in late if (await jobs.get(one)).state == CANCELED]) >= 20_000
    states = [(await jobs.get(one)).state for one in late]
    assert states[1:] == [QUEUED] * (len(late) - 1)  # only the first can have been submitted before the purge began
    stats = await serving.ports.admin.stats()
    assert stats.states["QUEUED"] == 1_000 + states.count(State.QUEUED)


@pytest.mark.parametrize("job_id", ["a", "x" * limits.JOB_ID_CHARS_MAX, "ü" * limits.JOB_ID_CHARS_MAX])
def test_cursor_names_a_place_and_its_query(job_id: str) -> None:
    """A cursor decodes to its position for any job id and for an equal query with its parts in another order."""
    query = JobQuery(frozenset({QUEUED, CANCELED}), labels={"a": "1", "b": "2"})
    same = JobQuery(frozenset({CANCELED, QUEUED}), labels={"b": "2", "a": "1"})
    cursor = cursor_of(query, (1_700_000_000_000, job_id))
    assert place_of(same, cursor) == (1_700_000_000_000, job_id)
    assert cursor.isascii()


@pytest.mark.parametrize(
    "other",
    [
        JobQuery(),
        JobQuery(frozenset({QUEUED})),
        JobQuery(queue="q", type="t"),
        JobQuery(queue="q", labels={"a": "1"}),
        JobQuery(queue="q", created_from_ms=1),
        JobQuery(queue="q", created_before_ms=1),
        JobQuery(queue="q", oldest_first=True),
        JobQuery(queue="\ud800"),
    ],
    ids=str,
)
def test_cursor_is_refused_by_every_other_query(other: JobQuery) -> None:
    """A cursor is refused by a query that differs in any field."""
    cursor = cursor_of(JobQuery(queue="q"), (1, "a"))
    with pytest.raises(InvalidArgumentError):
        place_of(other, cursor)


def test_cursor_with_anything_added_is_refused() -> None:
    """A cursor is refused if any character of its text was added, removed or changed."""
    query = JobQuery()
    cursor = cursor_of(query, (1, "a"))
    for text in (cursor + "A", cursor + "=", cursor[:-1], " " + cursor, cursor.swapcase(), cursor + "\n"):
        with pytest.raises(InvalidArgumentError):
            place_of(query, text)


async def test_closing_ledger_fails_waits_and_watches_with_unavailable(serving: ServedLedger) -> None:
    """When the ledger closes, a wait for a job's end and a watch fail with UnavailableError, and so does a new wait."""
    jobs = serving.ports.jobs
    (job_id,) = (await jobs.submit([Template("t")], [JobDraft()])).job_ids
    waiting = asyncio.create_task(jobs.settled(job_id))
    watch = jobs.watch(job_id)
    await anext(watch)
    watching = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    serving.core.jobs.close()
    for task in (waiting, watching):
        with pytest.raises(UnavailableError):
            await task
    with pytest.raises(UnavailableError):
        await jobs.settled(job_id)
