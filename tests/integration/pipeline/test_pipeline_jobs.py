"""The ports over a store: batched submits, waits and explanations."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing

import psycopg
import pytest

from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED, RUNNING
from holdfast.core.model import FIXED, BackoffRule, Extra, QueueMode, Template
from holdfast.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, UnavailableError
from holdfast.ports import AdminApi, JobApi, JobDraft
from holdfast.topologies.pipeline.backend.admin_api import PipelineAdmin
from holdfast.topologies.pipeline.backend.job_api import PipelineJobs
from holdfast.topologies.pipeline.backend.store import QueueAssignment, Store, WorkerKind
from holdfast.topologies.pipeline.postgres.database import PostgresStore
from tests.integration.pipeline.store_work import ECHO, claim, ended, insert, report, running, start


@pytest.fixture
async def jobs(store: PostgresStore) -> AsyncIterator[PipelineJobs]:
    """The job API of one scheduler."""
    port: Store = store
    jobs = PipelineJobs(port)
    yield jobs
    await jobs.close()


@pytest.fixture
def admin(store: PostgresStore) -> AdminApi:
    """The admin API of one scheduler."""
    return PipelineAdmin(store)


async def test_submits_at_the_same_time_get_their_own_answers(jobs: JobApi, store: PostgresStore) -> None:
    """Each of many concurrent callers gets its own jobs and its own errors, also when their submits are batched."""
    good = [jobs.submit([Template("echo", f"q{n}")], [JobDraft(payload=b"%d" % n)]) for n in range(40)]
    bad = [jobs.submit([Template("")], [JobDraft()]), jobs.submit([ECHO], [JobDraft(template=3)])]
    *made, broken, refused = await asyncio.gather(*good, *bad, return_exceptions=True)
    assert isinstance(broken, InvalidArgumentError)
    assert not isinstance(refused, BaseException)
    assert refused.refusals[0].reason == "TEMPLATE_INDEX_INVALID"
    for number, one in enumerate(made):
        assert not isinstance(one, BaseException)
        view = await store.rows.get(one.job_ids[0])
        assert (view.template.queue, await store.rows.payload(view.id)) == (f"q{number}", b"%d" % number)


async def test_twin_in_one_submission_is_told_as_existing(jobs: JobApi) -> None:
    """The second of two equal drafts with one request id returns the first one's job, marked as existing."""
    made = await jobs.submit([ECHO], [JobDraft(extra=Extra("r")), JobDraft(extra=Extra("r"))])
    assert made.job_ids[0] == made.job_ids[1]
    assert made.existing == frozenset({1})


async def test_waiters_get_the_end(jobs: JobApi, store: PostgresStore) -> None:
    """A caller that waits before or after a job's end gets the job and its result."""
    runs = [await running(store) for _ in range(5)]
    waiting = [asyncio.create_task(jobs.settled(run.job_id)) for run in runs for _ in range(2)]
    for run in runs:
        await report(store, run, output=run.job_id.encode())
    for (view, result), run in zip(
        await asyncio.gather(*waiting), [run for run in runs for _ in range(2)], strict=True
    ):
        assert (view.id, view.state, result.output) == (run.job_id, DONE, run.job_id.encode())
    late, _ = await jobs.settled(runs[0].job_id)
    assert late.state == DONE


async def test_waiting_for_nothing_ends(jobs: JobApi) -> None:
    """A wait for an unknown job fails with NOT_FOUND."""
    for job_id in (str(uuid.uuid4()), "no uuid"):
        with pytest.raises(NotFoundError):
            await jobs.settled(job_id)
        with pytest.raises(NotFoundError):
            await anext(aiter(jobs.watch(job_id)))


async def test_watch_sees_every_state_that_stays(jobs: JobApi, store: PostgresStore) -> None:
    """A watch returns the job at once, after each change, and at its end."""
    job_id = await insert(store)
    seen: list[int] = []
    async with aclosing(jobs.watch(job_id)) as views:  # type: ignore[type-var]
        async for view in views:
            seen.append(view.state)
            if view.state == QUEUED:
                run = await start(store, job_id)
            elif view.state == RUNNING:
                await report(store, run)
    assert seen == [QUEUED, RUNNING, DONE]


async def test_waiters_of_a_closing_scheduler_are_told(jobs: PipelineJobs, store: PostgresStore) -> None:
    """A caller that waits for a job gets UNAVAILABLE when the scheduler closes."""
    waiting = asyncio.create_task(jobs.settled(await insert(store)))
    other = asyncio.create_task(jobs.settled(await ended(store)))
    await other
    await jobs.close()
    with pytest.raises(UnavailableError):
        await waiting


async def test_deaf_scheduler_finds_out_by_looking(jobs: JobApi, store: PostgresStore, database: str) -> None:
    """A scheduler that misses the notification of a job's end finds it by polling."""
    run = await running(store)
    waiting = asyncio.create_task(jobs.settled(run.job_id))
    await jobs.settled(await ended(store))
    with psycopg.connect(database) as connection:  # without a NOTIFY, as if it had been lost
        connection.execute("UPDATE holdfast.jobs SET state = 3, version = version + 1 WHERE id = %s", (run.job_id,))
    view, _ = await waiting
    assert view.state == DONE


async def test_retry_makes_a_job_like_the_first(jobs: JobApi, store: PostgresStore) -> None:
    """A retry creates a job with the template, payload and labels of a finished one; an unfinished one is refused."""
    job_id = await insert(
        store, Template("echo", "q", 7), b"data", labels=(("k", "v"),), request_id="r", unique_key="u"
    )
    with pytest.raises(FailedPreconditionError) as refused:
        await jobs.retry(job_id)
    assert refused.value.reason == "JOB_NOT_ENDED"
    await report(store, await start(store, job_id), FAILED)
    again = await jobs.retry(job_id, "again")
    view = await jobs.get(again)
    assert view.template == Template("echo", "q", 7)
    assert view.extra == Extra("again", labels=(("k", "v"),), retry_of=job_id)
    assert await jobs.payload(again) == b"data"
    assert await jobs.retry(job_id, "again") == again


async def test_every_wait_is_explained(jobs: JobApi, store: PostgresStore) -> None:
    """A job has an explanation with its own reason in every state, from delayed to finished."""

    async def reason(job_id: str) -> str:
        explanation = await jobs.explain(job_id)
        assert explanation.sentence
        return explanation.reason

    job_id = await insert(store)
    assert await reason(job_id) == "NO_WORKER"
    await store.workers.save([QueueAssignment("w", "s", WorkerKind(("other",)), 1, ())])
    assert await reason(job_id) == "TYPE_UNKNOWN"
    await store.workers.save([QueueAssignment("w", "s", WorkerKind(("echo",), ("q",)), 1, ())])
    assert await reason(job_id) == "QUEUE_UNSERVED"
    await store.workers.save([QueueAssignment("w", "s", WorkerKind(("echo",)), 1, ())])
    assert await reason(job_id) == "WAITING_IN_QUEUE"
    await claim(store)
    assert await reason(job_id) == "CLAIMED"
    await store.claims.unclaim([job_id], 60_000)
    assert await reason(job_id) == "WAITING_IN_QUEUE"
    await store.workers.ask_to_drain("w")
    assert await reason(job_id) == "WORKERS_DRAINING"
    await store.queues.set_mode("default", QueueMode.PAUSED, "lunch")
    assert "lunch" in (await jobs.explain(job_id)).sentence
    assert await reason(job_id) == "QUEUE_PAUSED"
    await store.queues.set_mode("default", QueueMode.OPEN, "")
    run = await start(store, job_id)
    assert "leased by w for another" in (await jobs.explain(job_id)).sentence
    await report(store, run)
    assert await reason(job_id) == "ENDED"
    retried = await running(store, Template("echo", max_attempts=2, backoff=BackoffRule(FIXED, 600_000)))
    await report(store, retried, FAILED)
    assert "after 1 failed attempt" in (await jobs.explain(retried.job_id)).sentence


async def test_operators_see_everything(jobs: JobApi, admin: AdminApi, store: PostgresStore) -> None:
    """The admin API shows the numbers, queues and workers of the database."""
    await running(store)
    await ended(store)
    canceled = await insert(store, Template("echo", "q"))
    await jobs.cancel(canceled, "")
    await insert(store, Template("echo", "q"))
    await store.workers.save([QueueAssignment("w", "s", WorkerKind(("b", "a"), ("q",)), 5, ("7001",))])
    stats = await admin.stats()
    assert stats.states == {"QUEUED": 1, "RUNNING": 1, "DONE": 1, "FAILED": 0, "CANCELED": 1}
    assert (stats.position, stats.workers, stats.slots, stats.leases) == (0, 1, 5, 1)
    assert stats.cluster_id == await store.cluster_id()
    assert abs(stats.now_ms - (await store.rows.get(canceled)).created_ms) < 60_000
    (worker,) = await admin.workers()
    assert (worker.worker_id, worker.types, worker.queues, worker.running) == ("w", ["a", "b"], ["q"], 1)
    await admin.drain_worker("w")
    assert [one.is_draining for one in await admin.workers()] == [True]
    await admin.set_queue_mode("q", QueueMode.PAUSED, "why")
    assert [(one.name, one.mode) for one in await admin.queues()] == [("default", 1), ("q", 2)]
    assert await admin.purge("q", "") == 1
    assert (await store.queues.states())[CANCELED] == 2
