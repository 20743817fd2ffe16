"""Jobs as rows: reads, lists, searches and cancels."""

from collections.abc import Awaitable, Callable

import pytest

from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED, RUNNING
from holdfast.core.model import Extra, Template
from holdfast.errors import InvalidArgumentError, NotFoundError
from holdfast.ports import JobDraft, JobQuery
from holdfast.topologies.pipeline.postgres.database import PostgresStore
from tests.integration.pipeline.store_work import ECHO, claim, ended, insert, report, running, start

UNKNOWN = "becf4629-2772-48c0-93ee-9c042f20aa72"


async def test_unknown_job_is_not_found(store: PostgresStore) -> None:
    """Every method answers an unknown or malformed job id with NOT_FOUND."""
    methods: list[Callable[[str], Awaitable[object]]] = [
        store.rows.get,
        store.rows.result,
        store.rows.payload,
        store.rows.standing,
        lambda job_id: store.rows.cancel(job_id, ""),
    ]
    for job_id in (UNKNOWN, "", "no uuid", "\0", UNKNOWN.upper(), "x" * 1_000):
        for method in methods:
            with pytest.raises(NotFoundError) as caught:
                await method(job_id)
            assert caught.value.reason == "JOB_NOT_FOUND"
        assert await store.rows.versions([job_id]) == {}
        assert await store.rows.ended([job_id]) == {}


async def test_canceled_job_never_runs(store: PostgresStore) -> None:
    """A cancel ends a waiting job at once, also if its ticket was claimed, and a second cancel changes nothing."""
    job_id = await insert(store)
    assert len(await claim(store)) == 1
    reply = await store.rows.cancel(job_id, "why\0not")
    assert (reply.state, reply.was_terminal) == (CANCELED, False)
    assert await store.leases.start("w", [job_id], 1_000) == []
    again = await store.rows.cancel(job_id, "other")
    assert (again.state, again.was_terminal) == (CANCELED, True)
    view, result = (await store.rows.ended([job_id]))[job_id]
    assert (view.state, view.cancel_requested, view.attempts, result.summary) == (CANCELED, True, 0, "why\ufffdnot")
    assert await store.rows.result(job_id) == result


async def test_running_job_is_asked_to_stop(store: PostgresStore) -> None:
    """A cancel marks a running job once, and its worker is notified and may end it as canceled."""
    run = await running(store)
    reply = await store.rows.cancel(run.job_id, "enough")
    assert (reply.state, reply.was_terminal, reply.token) == (RUNNING, False, run.token)
    assert (await store.rows.cancel(run.job_id, "again")).state == RUNNING
    assert (await store.leases.extend("w", [run.token], 1_000)).cancels == [run.token]
    assert await report(store, run, CANCELED) == ""
    assert (await store.rows.result(run.job_id)).summary == "enough"


async def test_cancel_without_a_reason_is_explained(store: PostgresStore) -> None:
    """A job that is canceled without a reason has a summary."""
    job_id = await insert(store)
    await store.rows.cancel(job_id, "")
    assert (await store.rows.result(job_id)).summary == "canceled; no reason was given"
    with pytest.raises(InvalidArgumentError):
        await store.rows.cancel(job_id, "x" * 10_000)


async def jobs_of_all_states(store: PostgresStore) -> dict[int, str]:
    """Creates one job of each state."""
    done = await ended(store)
    failed = await running(store)
    await report(store, failed, FAILED, failure_reason="BAD")
    canceled = await insert(store)
    await store.rows.cancel(canceled, "")
    run = await running(store)
    return {DONE: done, FAILED: failed.job_id, CANCELED: canceled, RUNNING: run.job_id, QUEUED: await insert(store)}


async def test_pages_are_by_creation(store: PostgresStore) -> None:
    """Pages are ordered by creation time in either direction, with ids ascending within a millisecond."""
    jobs = await jobs_of_all_states(store)
    made = await store.rows.insert([ECHO], [JobDraft() for _ in range(20)])
    views = [await store.rows.get(job_id) for job_id in [*jobs.values(), *made.job_ids]]
    oldest = [view.id for view in sorted(views, key=lambda view: (view.created_ms, view.id))]
    newest = [view.id for view in sorted(views, key=lambda view: (-view.created_ms, view.id))]
    for order, expected in ((False, oldest), (True, newest)):
        first = await store.rows.page([], 0, 7, newest_first=order)
        second = await store.rows.page([], 7, 100, newest_first=order)
        assert [view.id for view in (*first.jobs, *second.jobs)] == expected
        assert (first.has_more, second.has_more) == (True, False)
    some = await store.rows.page([DONE, FAILED], 0, 10, newest_first=True)
    assert {view.id for view in some.jobs} == {jobs[DONE], jobs[FAILED]}
    exact = await store.rows.page([DONE], 0, 1, newest_first=True)
    assert (len(exact.jobs), exact.has_more) == (1, False)
    assert (await store.rows.page([DONE], 5, 1, newest_first=True)).jobs == []


async def found(store: PostgresStore, query: JobQuery, size: int = 50) -> list[str]:
    """All ids that a search finds, page by page."""
    ids: list[str] = []
    cursor = ""
    while True:
        part = await store.rows.find(query, cursor, size)
        ids += [view.id for view in part.jobs]
        if not part.cursor:
            return ids
        cursor = part.cursor


@pytest.mark.parametrize("oldest_first", [False, True])
async def test_search_goes_on_where_it_stopped(store: PostgresStore, oldest_first: bool) -> None:  # noqa: FBT001
    """Pages of any size give every job once and in order."""
    for _ in range(3):
        await store.rows.insert([ECHO], [JobDraft() for _ in range(10)])
    page = await store.rows.page([], 0, 100, newest_first=not oldest_first)
    for size in (1, 7, 10, 30, 31):
        assert await found(store, JobQuery(oldest_first=oldest_first), size) == [view.id for view in page.jobs]


async def test_search_filters_by_state_queue_type_labels_and_time(store: PostgresStore) -> None:
    """A search can filter by states, queue, type, labels and time."""
    jobs = await jobs_of_all_states(store)
    other = await insert(store, Template("other", "q"), labels=(("a", "1"), ("b", "2")))
    assert await found(store, JobQuery(states=frozenset({DONE}))) == [jobs[DONE]]
    assert await found(store, JobQuery(queue="q")) == [other]
    assert await found(store, JobQuery(type="other")) == [other]
    assert await found(store, JobQuery(type="other", queue="default")) == []
    assert await found(store, JobQuery(labels={"a": "1"})) == [other]
    assert await found(store, JobQuery(labels={"a": "1", "b": "2"})) == [other]
    assert await found(store, JobQuery(labels={"a": "2"})) == []
    created_ms = (await store.rows.get(other)).created_ms
    assert other not in await found(store, JobQuery(created_before_ms=created_ms))
    assert other in await found(store, JobQuery(created_from_ms=created_ms))


async def test_search_by_a_label_with_a_nul_finds_only_that_label(store: PostgresStore) -> None:
    """A search by a label with a NUL finds that label and no similar one."""
    one, other = await insert(store, labels=(("k", "a\0"),)), await insert(store, labels=(("k", "a\ufffd"),))
    assert await found(store, JobQuery(labels={"k": "a\0"})) == [one]
    assert await found(store, JobQuery(labels={"k": "a\ufffd"})) == [other]


async def test_strange_cursor_is_refused(store: PostgresStore) -> None:
    """A cursor of another search, or a malformed one, is refused."""
    await store.rows.insert([ECHO], [JobDraft() for _ in range(3)])
    cursor = (await store.rows.find(JobQuery(), "", 1)).cursor
    assert cursor
    for query, strange in ((JobQuery(type="x"), cursor), (JobQuery(), "nonsense"), (JobQuery(), "x" * 9_999)):
        with pytest.raises(InvalidArgumentError) as caught:
            await store.rows.find(query, strange, 1)
        assert caught.value.reason == "CURSOR_INVALID"
    with pytest.raises(InvalidArgumentError):
        await store.rows.find(JobQuery(), "", 0)


async def test_version_grows_with_each_change_that_clients_see(store: PostgresStore) -> None:
    """Every visible change of a job increases its version, and a claim does not."""
    job_id = await insert(store)
    seen = [(await store.rows.versions([job_id, UNKNOWN]))]
    await claim(store)
    assert await store.rows.versions([job_id]) == seen[0]
    run = await start(store, job_id)
    seen.append(await store.rows.versions([job_id]))
    await store.rows.cancel(job_id, "")
    seen.append(await store.rows.versions([job_id]))
    await report(store, run)
    seen.append(await store.rows.versions([job_id]))
    numbers = [versions[job_id] for versions in seen]
    assert numbers == sorted(set(numbers))


async def test_changes_are_heard(store: PostgresStore) -> None:
    """A listener gets an empty notification at once, and then the ids of all changed jobs."""
    changes = store.rows.changes()
    assert await anext(changes) == frozenset()
    made = await store.rows.insert([ECHO], [JobDraft(extra=Extra(labels=(("k", "v"),))) for _ in range(500)])
    assert len(await store.leases.start("w", made.job_ids, 60_000)) == 500
    heard: set[str] = set()
    while len(heard) < 500:
        heard |= set(await anext(changes))
    assert heard == set(made.job_ids)
    await store.rows.cancel(made.job_ids[7], "")
    assert await anext(changes) == {made.job_ids[7]}
    await changes.aclose()  # type: ignore[attr-defined]
