"""Claims: their order, their visibility timeout, and their return."""

import asyncio

import psycopg
import pytest

from holdfast.core.lifecycle import CANCELED, FAILED, QUEUED, RUNNING
from holdfast.core.model import QueueMode, Template
from holdfast.errors import NotFoundError
from holdfast.ports import JobDraft
from holdfast.topologies.pipeline.backend.store import WorkerKind
from holdfast.topologies.pipeline.postgres.database import PostgresStore
from tests.integration.pipeline.store_work import ECHO, ECHOES, claim, ended, insert, report, running, start
from tests.integration.pipeline.turned_clock import MINUTE, TurnedClock


async def test_urgent_jobs_come_first(store: PostgresStore) -> None:
    """A claim takes high priorities before low ones, and submit order within each, over all lanes."""
    templates = [Template("echo", "a", 1), Template("echo", "b", 9), Template("echo", "c", 9), Template("echo", "a", 5)]
    made = await store.rows.insert(templates, [JobDraft(at) for at in (0, 1, 2, 3, 1, 2, 0)])
    ids = made.job_ids
    assert [ticket.job_id for ticket in await claim(store)] == [ids[at] for at in (1, 2, 4, 5, 3, 0, 6)]


async def test_few_places_go_to_the_most_urgent(store: PostgresStore) -> None:
    """A claim of one row takes the first of all lanes."""
    low = await insert(store, Template("echo", "a", 1))
    high = await insert(store, Template("echo", "z", 8))
    assert [ticket.job_id for ticket in await claim(store, count=1)] == [high]
    assert [ticket.job_id for ticket in await claim(store, count=1)] == [low]


async def test_patient_jobs_are_claimed_before_urgent_ones_that_have_just_come(
    store: PostgresStore, database: str
) -> None:
    """Each minute of waiting raises a job by one priority, also after its ticket was lost."""
    clock = TurnedClock(database)
    low = await insert(store, Template("echo", "default", 2))
    assert [ticket.waited_ms for ticket in await claim(store, visibility_ms=MINUTE)] == [0]
    clock.turn(2 * MINUTE)
    sooner = await insert(store, Template("echo", "default", 5))
    clock.turn(2 * MINUTE)
    later = await insert(store, Template("echo", "default", 5))
    tickets = [(await claim(store, count=1))[0] for _ in range(3)]
    assert [ticket.job_id for ticket in tickets] == [sooner, low, later]
    assert [ticket.waited_ms for ticket in tickets] == [2 * MINUTE, 4 * MINUTE, 0]
    clock.close()


async def test_claim_leaves_rows_that_no_worker_takes(store: PostgresStore) -> None:
    """A claim leaves rows whose route and queue no worker takes, and rows of full lanes."""
    await insert(store, Template("unknown"))
    in_a, in_b = await insert(store, Template("echo", "a")), await insert(store, Template("echo", "b"))
    assert await store.claims.claim(10, 60_000, [], []) == []
    assert await store.claims.claim(10, 60_000, [WorkerKind(("other",))], []) == []
    assert await store.claims.claim(10, 60_000, [WorkerKind(("echo",), ("c",))], []) == []
    assert await store.claims.claim(10, 60_000, ECHOES, [("a", "echo", False), ("b", "echo", False)]) == []
    (ticket,) = await store.claims.claim(
        10, 60_000, [WorkerKind(("x", "echo"), ("a",)), WorkerKind(("x",))], [("b", "echo", False)]
    )
    assert ticket.job_id == in_a
    (ticket,) = await store.claims.claim(
        10, 60_000, [WorkerKind(("echo",), ("b",))], [("a", "echo", False), ("b", "x", False)]
    )
    assert ticket.job_id == in_b


async def test_paused_queue_holds_its_jobs(store: PostgresStore) -> None:
    """Jobs of a paused queue are neither claimed nor started, and those of a draining queue are."""
    job_id = await insert(store)
    await store.queues.set_mode("default", QueueMode.PAUSED, "")
    assert await claim(store) == []
    assert await store.leases.start("w", [job_id], 1_000) == []
    await store.queues.set_mode("default", QueueMode.DRAINING, "")
    assert [ticket.job_id for ticket in await claim(store)] == [job_id]
    await start(store, job_id)


async def test_lost_ticket_is_claimed_again(store: PostgresStore) -> None:
    """A row whose ticket was lost is visible again after its timeout, and counts its deliveries."""
    await insert(store)
    (first,) = await claim(store, visibility_ms=0)
    (second,) = await claim(store)
    assert (second.job_id, first.deliveries, second.deliveries) == (first.job_id, 1, 2)
    assert await claim(store) == []


async def test_row_of_a_lost_ticket_is_claimed_before_later_rows(store: PostgresStore, database: str) -> None:
    """A row whose ticket was lost is claimed again before rows that were inserted later."""
    clock = TurnedClock(database)
    first = await insert(store, ECHO)
    await claim(store, visibility_ms=MINUTE)
    later = [await insert(store, ECHO) for _ in range(9)]
    clock.turn(2 * MINUTE)
    assert [(await claim(store, count=1))[0].job_id for _ in range(10)] == [first, *later]
    clock.close()


async def test_delayed_job_is_not_visible(store: PostgresStore) -> None:
    """A job that is not due is neither claimed nor started, and its due time is known."""
    (job_id,) = (await store.rows.insert([ECHO], [JobDraft(delay_ms=3_600_000)])).job_ids
    assert await claim(store) == []
    assert await store.leases.start("w", [job_id], 1_000) == []
    wait_ms = await store.claims.next_visible_ms()
    assert wait_ms is not None
    assert 3_500_000 < wait_ms <= 3_600_000


async def test_next_visible_is_the_earliest(store: PostgresStore) -> None:
    """The store returns when the next row of any lane becomes visible, or None."""
    assert await store.claims.next_visible_ms() is None
    await insert(store)
    assert await store.claims.next_visible_ms() is None
    for at, delay_ms in enumerate((900_000, 300_000, 600_000)):
        await store.rows.insert([Template("echo", f"q{at}")], [JobDraft(delay_ms=delay_ms)])
    wait_ms = await store.claims.next_visible_ms()
    assert wait_ms is not None
    assert 200_000 < wait_ms <= 300_000


async def test_unclaimed_rows_go_back_to_their_place(store: PostgresStore) -> None:
    """An unclaimed row is visible at once and in its old place, or after the requested delay."""
    first, second = await insert(store), await insert(store)
    assert [ticket.job_id for ticket in await claim(store, count=1)] == [first]
    await store.claims.unclaim([first, "no uuid"], 0)
    assert [ticket.job_id for ticket in await claim(store)] == [first, second]
    await store.claims.unclaim([first], 3_600_000)
    assert await claim(store) == []


async def test_unclaim_does_not_change_a_job_in_a_later_state(store: PostgresStore) -> None:
    """An unclaim does not change a job that is running, has ended or waits for its retry."""
    run = await running(store)
    done = await ended(store)
    retried = await running(store, Template("echo", max_attempts=2))
    await report(store, retried, FAILED, retry_after_ms=3_600_000)
    before = [await store.rows.get(job_id) for job_id in (run.job_id, done, retried.job_id)]
    await store.claims.unclaim([run.job_id, done, retried.job_id], 0)
    assert [await store.rows.get(job_id) for job_id in (run.job_id, done, retried.job_id)] == before
    assert await claim(store) == []


async def test_expired_lease_goes_back(store: PostgresStore) -> None:
    """An expired lease counts a loss, the job is visible again, and the late report is refused."""
    run = await running(store, lease_ms=0)
    kept = await running(store)
    assert await store.claims.expire(10) == 1
    assert await store.claims.expire(10) == 0
    view = await store.rows.get(run.job_id)
    assert (view.state, view.losses, view.attempts, view.worker) == (QUEUED, 1, 1, "")
    assert (await store.rows.get(kept.job_id)).state == RUNNING
    assert await report(store, run) == "STALE_TOKEN"
    again = await start(store, run.job_id)
    assert again.token > run.token
    assert again.attempt == 2
    assert await report(store, run) == "STALE_TOKEN"
    assert await report(store, again) == ""


async def test_losses_are_counted_out(store: PostgresStore) -> None:
    """A job that exceeds its permitted losses is FAILED with that reason."""
    run = await running(store, Template("echo", max_losses=1), lease_ms=0)
    assert await store.claims.expire(10) == 1
    await start(store, run.job_id, lease_ms=0)
    assert await store.claims.expire(10) == 1
    view = await store.rows.get(run.job_id)
    assert (view.state, view.failure_reason, view.losses) == (FAILED, "WORKER_LOST", 2)
    assert (await store.rows.result(run.job_id)).summary == "its lease ended (expired) after 2 attempts"


async def test_expired_lease_of_a_canceled_job_ends_it(store: PostgresStore) -> None:
    """A running job with a requested cancel ends when its lease expires."""
    run = await running(store, lease_ms=0)
    await store.rows.cancel(run.job_id, "stop")
    await store.claims.expire(10)
    assert (await store.rows.result(run.job_id)).state == CANCELED


async def test_many_leases_are_taken_back_in_parts(store: PostgresStore) -> None:
    """Expired leases are taken back in batches of the requested size."""
    made = await store.rows.insert([ECHO], [JobDraft() for _ in range(25)])
    await store.leases.start("w", made.job_ids, 0)
    counts = [await store.claims.expire(10) for _ in range(4)]
    assert counts == [10, 10, 5, 0]


async def test_failed_jobs_are_kept_for_a_time_of_their_own(store: PostgresStore, database: str) -> None:
    """Failed jobs have a retention of their own, and a job's attempts are deleted with it."""
    failed, done = await running(store), await ended(store)
    await report(store, failed, FAILED, failure_reason="broken")
    canceled = await insert(store)
    await store.rows.cancel(canceled, "")
    assert await store.claims.retire(10, retain_ms=0, retain_failed_ms=3_600_000) == 2
    for job_id in (done, canceled):
        with pytest.raises(NotFoundError):
            await store.rows.get(job_id)
    assert [entry.what for entry in await store.rows.history(failed.job_id)] == ["submitted", "granted", "finished"]
    assert await store.claims.retire(10, retain_ms=3_600_000, retain_failed_ms=0) == 1
    with pytest.raises(NotFoundError):
        await store.rows.history(failed.job_id)
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM holdfast.executions").fetchall() == [(0,)]


async def test_old_jobs_are_retired(store: PostgresStore) -> None:
    """A finished job is deleted after its retention, with its request id, and an unfinished one never."""
    done, waiting = await ended(store), await insert(store, request_id="r")
    run = await running(store)
    assert await store.claims.retire(10, retain_ms=3_600_000, retain_failed_ms=3_600_000) == 0
    assert await store.claims.retire(10, retain_ms=0, retain_failed_ms=0) == 1
    for method in (store.rows.get, store.rows.result):
        try:
            await method(done)
        except NotFoundError:
            continue
        raise AssertionError("the retired job must be deleted, but it was found")
    assert (await store.rows.get(waiting)).state == QUEUED
    await store.rows.cancel(waiting, "")
    await report(store, run, FAILED)
    assert await store.claims.retire(1, retain_ms=0, retain_failed_ms=0) == 1
    assert await store.claims.retire(10, retain_ms=0, retain_failed_ms=0) == 1
    assert await insert(store, request_id="r") != waiting
    assert await store.queues.states() == {1: 1, 2: 0, 3: 0, 4: 0, 5: 0}


async def test_counts_stay_right_when_they_are_added_up(store: PostgresStore) -> None:
    """Rows of counts are merged while others are added, and the totals stay right."""

    async def submit() -> None:
        for _ in range(100):
            await insert(store)

    async def add_up() -> None:
        for _ in range(20):
            await store.claims.retire(1, retain_ms=3_600_000, retain_failed_ms=3_600_000)

    await asyncio.gather(submit(), submit(), submit(), add_up(), add_up())
    assert (await store.queues.states())[QUEUED] == 300
    await store.claims.retire(1, retain_ms=3_600_000, retain_failed_ms=3_600_000)
    assert (await store.queues.states())[QUEUED] == 300
    (queue,) = await store.queues.queues()
    assert queue.ready == 300


async def test_due_rows_are_heard_of(store: PostgresStore) -> None:
    """A listener gets one notification at once, and then one for each new, unclaimed, released or reopened row."""
    due = store.claims.due()
    await anext(due)
    job_id = await insert(store)
    await anext(due)
    await claim(store)
    await store.claims.unclaim([job_id], 0)
    await anext(due)
    run = await start(store, job_id)
    await store.leases.release("w", [run.token], is_spent=False)
    await anext(due)
    await store.queues.set_mode("default", QueueMode.OPEN, "")
    await anext(due)
    await due.aclose()  # type: ignore[attr-defined]
