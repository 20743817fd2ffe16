"""Leases: starts, heartbeats, reports and releases."""

import pytest

from holdfast import limits
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED, RUNNING
from holdfast.core.model import FIXED, BackoffRule, Template
from holdfast.ports import JobDraft
from holdfast.topologies.pipeline.postgres.database import PostgresStore
from tests.integration.pipeline.store_work import ECHO, claim, ended, insert, report, running, start


async def test_start_takes_only_waiting_jobs(store: PostgresStore) -> None:
    """A start takes only waiting jobs, in submit order, each with a token of its own."""
    first, second = await insert(store), await insert(store)
    run, done = await running(store), await ended(store)
    runs = await store.leases.start("w", [second, run.job_id, done, first, "no uuid", first], 1_000)
    assert [one.job_id for one in runs] == [first, second]
    assert len({one.token for one in runs} | {run.token}) == 3
    assert await store.leases.start("w", [], 1_000) == []


async def test_extend_confirms_only_leases_of_the_worker(store: PostgresStore) -> None:
    """A heartbeat confirms the worker's own leases, and not those of others, ended ones or unknown ones."""
    mine, other = await running(store), await running(store, worker="x")
    over = await running(store)
    await report(store, over)
    heard = await store.leases.extend("w", [mine.token, other.token, over.token, 1 << 60], 60_000)
    assert (heard.held, heard.cancels) == ([mine.token], [])
    assert (await store.leases.extend("w", [], 1_000)).held == []


async def test_extended_lease_does_not_expire(store: PostgresStore) -> None:
    """A heartbeat extends a lease to the requested length, which may be shorter than before."""
    run = await running(store, lease_ms=0)
    await store.leases.extend("w", [run.token], 60_000)
    assert await store.claims.expire(10) == 0
    await store.leases.extend("w", [run.token], 0)
    assert await store.claims.expire(10) == 1


async def test_report_counts_once(store: PostgresStore) -> None:
    """The first result stays: an equal report is accepted again, and a different one is refused."""
    run = await running(store)
    assert await report(store, run, DONE, output=b"1", runtime_ms=5) == ""
    assert await report(store, run, DONE, output=b"2") == ""
    assert await report(store, run, FAILED) == "ALREADY_FINISHED"
    result = await store.rows.result(run.job_id)
    assert (result.output, result.runtime_ms) == (b"1", 5)


async def test_stranger_cannot_report(store: PostgresStore) -> None:
    """Only the holder of the current lease can end a job."""
    run = await running(store)
    assert await report(store, run, worker="x") == "NOT_THE_HOLDER"
    rows = [ReportRow(run.job_id, run.token + 1_000, DONE), ReportRow("no uuid", 1, DONE)]
    assert await store.leases.report("w", rows) == ["STALE_TOKEN", "UNKNOWN_JOB"]
    assert (await store.rows.get(run.job_id)).state == RUNNING
    assert await store.leases.report("w", [ReportRow(run.job_id, 0, DONE)]) == [""]
    waiting = await insert(store)
    assert await store.leases.report("w", [ReportRow(waiting, 0, DONE)]) == ["STALE_TOKEN"]


async def test_reports_of_one_batch_are_judged_one_after_the_other(store: PostgresStore) -> None:
    """Two reports on one job in the same batch get the responses of two separate reports."""
    run, other = await running(store), await running(store)
    rows = [
        ReportRow(run.job_id, run.token, DONE),
        ReportRow(other.job_id, other.token, FAILED, failure_reason="BAD"),
        ReportRow(run.job_id, run.token, DONE),
        ReportRow(run.job_id, run.token, FAILED),
        ReportRow(run.job_id, 0, DONE),
    ]
    assert await store.leases.report("w", rows) == ["", "", "", "ALREADY_FINISHED", "ALREADY_FINISHED"]
    assert (await store.rows.get(other.job_id)).failure_reason == "BAD"


async def test_failed_attempt_is_tried_again_later(store: PostgresStore) -> None:
    """A failed job with attempts left waits for its back-off, and a repeated report does not count another attempt."""
    template = Template("echo", max_attempts=2, backoff=BackoffRule(FIXED, 3_600_000))
    run = await running(store, template)
    assert await report(store, run, FAILED) == ""
    assert await report(store, run, FAILED) == ""
    view = await store.rows.get(run.job_id)
    assert (view.state, view.failures, view.attempts) == (QUEUED, 1, 1)
    assert view.not_before_ms - view.started_ms >= 3_600_000
    assert await claim(store) == []
    assert await store.leases.start("w", [run.job_id], 1_000) == []


async def test_failure_that_is_told_again_leaves_the_next_attempt_alone(store: PostgresStore) -> None:
    """A repeated report of a failure is accepted and does not disturb the attempt that is running."""
    run = await running(store, Template("echo", max_attempts=3, backoff=BackoffRule(FIXED, 0)))
    assert await report(store, run, FAILED) == ""
    (again,) = await store.leases.start("other", [run.job_id], 60_000)
    assert await report(store, run, FAILED) == ""
    view = await store.rows.get(run.job_id)
    assert (view.state, view.failures, view.token) == (RUNNING, 1, again.token)
    assert await report(store, again, DONE, worker="other") == ""


async def test_attempts_are_counted_out(store: PostgresStore) -> None:
    """The last failed attempt ends the job, and all attempts are counted."""
    run = await running(store, Template("echo", max_attempts=2, backoff=BackoffRule(FIXED, 0)))
    assert await report(store, run, FAILED, failure_reason="ONE") == ""
    again = await start(store, run.job_id)
    assert again.attempt == 2
    assert await report(store, again, FAILED, failure_reason="TWO") == ""
    view = await store.rows.get(run.job_id)
    assert (view.state, view.failures, view.attempts, view.failure_reason) == (FAILED, 2, 2, "TWO")


async def test_final_failure_is_not_tried_again(store: PostgresStore) -> None:
    """A failure that the worker reports as not retryable ends the job."""
    run = await running(store, Template("echo", max_attempts=5))
    assert await report(store, run, FAILED, is_retryable=False) == ""
    assert (await store.rows.get(run.job_id)).state == FAILED


async def test_output_over_the_limit_fails_the_job(store: PostgresStore) -> None:
    """An output above the limit makes the job FAILED with OUTPUT_TOO_LARGE, and one at the limit is stored whole."""
    run = await running(store)
    assert await report(store, run, output=bytes(limits.OUTPUT_BYTES_MAX + 1)) == ""
    assert (await store.rows.get(run.job_id)).failure_reason == "OUTPUT_TOO_LARGE"
    whole = await running(store)
    assert await report(store, whole, output=bytes(limits.OUTPUT_BYTES_MAX)) == ""
    assert len((await store.rows.result(whole.job_id)).output) == limits.OUTPUT_BYTES_MAX


@pytest.mark.parametrize(("is_spent", "losses"), [(False, 0), (True, 1)])
async def test_released_lease_is_visible_at_once(store: PostgresStore, is_spent: bool, losses: int) -> None:  # noqa: FBT001
    """A released job returns to its old place, and counts a loss only if it was run."""
    run = await running(store)
    later = await insert(store)
    other = await running(store, worker="x")
    await store.leases.release("w", [run.token, other.token, 1 << 60], is_spent=is_spent)
    view = await store.rows.get(run.job_id)
    assert (view.state, view.losses) == (QUEUED, losses)
    assert (await store.rows.get(other.job_id)).state == RUNNING
    assert [ticket.job_id for ticket in await claim(store)] == [run.job_id, later]


async def test_endless_rounds_are_ended(store: PostgresStore) -> None:
    """A job that is returned unrun too often is FAILED with WORKER_LOST."""
    job_id = await insert(store, Template("echo", max_losses=0))
    rounds = 0
    while runs := await store.leases.start("w", [job_id], 1_000):
        await store.leases.release("w", [runs[0].token], is_spent=False)
        rounds += 1
    assert rounds == limits.UNSPENT_GRANTS_MAX + 1
    assert (await store.rows.get(job_id)).failure_reason == "WORKER_LOST"


async def test_new_session_keeps_the_leases_it_names(store: PostgresStore) -> None:
    """A new session keeps the leases that it names correctly, and its worker's other leases return to the queue."""
    kept, lost, wrong = await running(store, lease_ms=0), await running(store), await running(store)
    other = await running(store, worker="x")
    held = {kept.token: kept.job_id, wrong.token: kept.job_id, other.token: other.job_id, 1 << 60: "no uuid"}
    assert await store.leases.arrive("w", held, 60_000, session="s") == [kept.token]
    assert await store.claims.expire(10) == 0
    states = {run.job_id: (await store.rows.get(run.job_id)).state for run in (kept, lost, wrong, other)}
    assert list(states.values()) == [RUNNING, QUEUED, QUEUED, RUNNING]
    assert (await store.rows.get(lost.job_id)).losses == 1
    assert await store.leases.arrive("w", {}, 60_000, session="s") == []
    assert await store.leases.arrive("new", {}, 60_000, session="s") == []


async def test_failure_after_a_cancel_ends_the_job(store: PostgresStore) -> None:
    """A job with a requested cancel is not retried after a failure."""
    run = await running(store, Template("echo", max_attempts=5))
    await store.rows.cancel(run.job_id, "stop")
    assert await report(store, run, FAILED) == ""
    assert (await store.rows.result(run.job_id)).state == CANCELED


async def test_large_batches_go_through(store: PostgresStore) -> None:
    """A thousand jobs can be started and reported in one call each."""
    made = await store.rows.insert([ECHO], [JobDraft(payload=b"%d" % number) for number in range(1_000)])
    runs = await store.leases.start("w", made.job_ids, 60_000)
    assert [run.payload for run in runs] == [b"%d" % number for number in range(1_000)]
    rows = [ReportRow(run.job_id, run.token, DONE, run.payload) for run in runs]
    assert await store.leases.report("w", rows) == [""] * 1_000
    assert (await store.queues.states())[DONE] == 1_000
