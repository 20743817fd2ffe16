"""Queues and workers as operators see them."""

import asyncio

import psycopg
import pytest

from holdfast import limits
from holdfast.core.lifecycle import CANCELED, QUEUED, RUNNING
from holdfast.core.model import QueueMode, Template
from holdfast.errors import InvalidArgumentError, NotFoundError, ResourceExhaustedError, UnavailableError
from holdfast.ports import JobDraft
from holdfast.topologies.pipeline.backend.store import QueueAssignment, WorkerKind
from holdfast.topologies.pipeline.postgres import queues
from holdfast.topologies.pipeline.postgres.database import PostgresStore
from tests.integration.pipeline.store_work import ECHO, claim, ended, insert, running
from tests.integration.pipeline.wait_until import happens


async def test_queues_list_counts_ready_delayed_and_running_jobs(store: PostgresStore) -> None:
    """The list of queues has the ready, delayed and running jobs of each queue that has unfinished jobs."""
    await running(store, Template("echo", "a"))
    await insert(store, Template("echo", "a", 9))
    await insert(store, Template("other", "a"))
    await store.rows.insert(
        [Template("echo", "a"), Template("echo", "b")], [JobDraft(at, delay_ms=9_999_999) for at in (0, 0, 1)]
    )
    await ended(store)
    await store.queues.set_mode("z", QueueMode.PAUSED, "why\0")
    views = {view.name: view for view in await store.queues.queues()}
    assert list(views) == ["a", "b", "z"]
    assert [(view.ready, view.delayed, view.running) for view in views.values()] == [(2, 2, 1), (0, 1, 0), (0, 0, 0)]
    assert (views["z"].mode, views["z"].reason) == (QueueMode.PAUSED, "why\ufffd")
    assert (views["a"].mode, views["b"].oldest_age_ms) == (QueueMode.OPEN, 0)


async def test_oldest_wait_includes_jobs_with_claimed_tickets(store: PostgresStore, database: str) -> None:
    """The age of the oldest waiting job includes jobs whose tickets have been claimed."""
    old, young = await insert(store), await insert(store)
    with psycopg.connect(database) as connection:
        for job_id, age_ms in ((old, 100_000), (young, 50_000)):
            connection.execute(
                "UPDATE holdfast.jobs SET created_ms = created_ms - %s, visible_ms = created_ms - %s WHERE id = %s",
                (age_ms, age_ms, job_id),
            )
    (before,) = await store.queues.queues()
    assert len(await claim(store, count=1)) == 1
    (after,) = await store.queues.queues()
    assert after.oldest_age_ms >= before.oldest_age_ms >= 100_000
    assert (after.ready, after.delayed) == (2, 0)


async def test_types_of_many_lanes_are_counted_within_one_bound(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store counts the types of waiting jobs over all lanes only up to one bound."""
    for name in ("a", "b"):
        await store.rows.insert([Template(name, "q")], [JobDraft() for _ in range(5)])
    (whole,) = await store.queues.queues()
    assert whole.types == {"a": 5, "b": 5}
    monkeypatch.setattr(limits, "TYPES_COUNTED_MAX", 6)
    (bounded,) = await store.queues.queues()
    assert (bounded.types, bounded.ready) == ({"a": 3, "b": 3}, 10)


async def test_modes_are_kept_and_said_again(store: PostgresStore) -> None:
    """A queue's mode can be set again, changed and reset."""
    for mode in (QueueMode.PAUSED, QueueMode.PAUSED, QueueMode.DRAINING):
        await store.queues.set_mode("q", mode, "r")
        assert [(view.name, view.mode) for view in await store.queues.queues()] == [("q", mode)]
    await store.queues.set_mode("q", QueueMode.OPEN, "")
    await store.queues.set_mode("q", QueueMode.OPEN, "")
    assert await store.queues.queues() == []
    with pytest.raises(InvalidArgumentError):
        await store.queues.set_mode("no name", QueueMode.PAUSED, "")


@pytest.mark.parametrize("mode", [QueueMode.OPEN, QueueMode.DRAINING])
async def test_rows_claimed_before_a_pause_are_visible_at_once_after_it(store: PostgresStore, mode: QueueMode) -> None:
    """After a pause, rows that were claimed before it are visible at once, except those of other queues or not due."""
    held = {await insert(store), await insert(store)}
    await insert(store, Template("echo", "other"))
    await store.rows.insert([ECHO], [JobDraft(delay_ms=9_999_999)])
    assert len(await claim(store)) == 3
    await store.queues.set_mode("default", QueueMode.PAUSED, "")
    assert await store.leases.start("w", held, 1_000) == []
    await store.queues.set_mode("default", mode, "")
    assert {ticket.job_id for ticket in await claim(store)} == held
    await store.queues.set_mode("default", mode, "")
    assert await claim(store) == []


async def test_drain_returns_when_earlier_writers_have_committed(
    store: PostgresStore, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain returns when earlier writers have committed, or fails as unavailable when they take too long."""
    job_id = await insert(store)
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE holdfast.jobs SET priority = 3 WHERE id = %s", (job_id,))
        monkeypatch.setattr(queues, "_WRITERS_S", 60.0)
        draining = asyncio.create_task(store.queues.set_mode("q", QueueMode.DRAINING, ""))
        await happens(store.queues.queues, lambda views: "q" in {view.name for view in views})
        for _ in range(10):
            await store.queues.queues()
        assert not draining.done()
        connection.rollback()
        await draining
        connection.execute("UPDATE holdfast.jobs SET priority = 3 WHERE id = %s", (job_id,))
        monkeypatch.setattr(queues, "_WRITERS_S", 0.0)
        with pytest.raises(UnavailableError, match="try again"):
            await store.queues.set_mode("q", QueueMode.DRAINING, "")


async def test_closed_queues_are_bounded(store: PostgresStore, database: str) -> None:
    """Beyond the limit no further queue can be closed, and a closed one can change its mode."""
    with psycopg.connect(database) as connection:
        connection.execute(
            "INSERT INTO holdfast.queues SELECT 'q' || n, 2, '', 1 FROM generate_series(1, %s) n",
            (limits.QUEUES_CLOSED_MAX,),
        )
    with pytest.raises(ResourceExhaustedError):
        await store.queues.set_mode("more", QueueMode.PAUSED, "")
    await store.queues.set_mode("q1", QueueMode.DRAINING, "")


async def test_purge_cancels_jobs_that_are_not_running(store: PostgresStore) -> None:
    """A purge cancels waiting, delayed and claimed jobs of the queue, and neither running jobs nor other queues."""
    await store.rows.insert([ECHO, Template("x", priority=0)], [JobDraft(at % 2) for at in range(999)])
    await store.rows.insert([ECHO], [JobDraft(delay_ms=9_999_999) for _ in range(300)])
    await claim(store, count=50)
    run = await running(store)
    other = await insert(store, Template("echo", "other"))
    assert await store.queues.purge("default", "spring") == 1_299
    assert await store.queues.purge("default", "spring") == 0
    assert (await store.rows.get(other)).state == QUEUED
    assert (await store.rows.get(run.job_id)).state == RUNNING
    assert (await store.queues.states())[CANCELED] == 1_299
    page = await store.rows.page([CANCELED], 0, 1, newest_first=True)
    assert (await store.rows.result(page.jobs[0].id)).summary == "spring"


def place(worker: str, session: str = "s", **more: object) -> QueueAssignment:
    return QueueAssignment(worker, session, WorkerKind(("a", "b"), ("q",)), 5, ("7001", "7101"), **more)  # type: ignore[arg-type]


async def test_places_are_kept(store: PostgresStore) -> None:
    """The store returns the places that a coordinator stored, by worker, and replaces or removes them on request."""
    await store.workers.save([place("w2"), place("w1", is_draining=True)])
    first, second = await store.workers.all()
    assert (first.worker, first.is_draining, second.worker) == ("w1", True, "w2")
    assert (second.kind, second.slots, second.queues) == (WorkerKind(("a", "b"), ("q",)), 5, ("7001", "7101"))
    assert 0 <= second.heard_ms_ago < 60_000
    await store.workers.save([QueueAssignment("w2", "s", WorkerKind(()), 1, ())])
    await store.workers.save([])
    await store.workers.remove(["w1", "nobody"])
    (only,) = await store.workers.all()
    assert (only.worker, only.kind, only.queues, only.slots) == ("w2", WorkerKind(()), (), 1)


async def test_drain_is_remembered_for_the_session(store: PostgresStore) -> None:
    """A worker that was asked to drain stays draining until its next session."""
    await store.workers.save([place("w")])
    await store.workers.ask_to_drain("w")
    await store.workers.save([place("w")])
    assert [one.is_draining for one in await store.workers.all()] == [True]
    await store.leases.arrive("w", {}, 60_000, session="new")
    await store.workers.save([place("w", "new")])
    assert [one.is_draining for one in await store.workers.all()] == [False]
    for nobody in ("nobody", "\0"):
        with pytest.raises(NotFoundError):
            await store.workers.ask_to_drain(nobody)


async def test_two_coordinators_may_write(store: PostgresStore) -> None:
    """Coordinators that store the same workers in different orders at the same time do not deadlock."""
    workers = [place(f"w{number}") for number in range(50)]
    await asyncio.gather(*(store.workers.save(workers[::step]) for step in (1, -1, 1, -1)))
    assert len(await store.workers.all()) == 50
