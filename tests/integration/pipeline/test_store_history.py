"""Histories, which the database derives from the rows of jobs and their attempts."""

import msgspec
import pytest

from holdfast.core.failure import Failure
from holdfast.core.history import attempts
from holdfast.core.lifecycle import CANCELED, FAILED
from holdfast.core.model import FIXED, BackoffRule, Template
from holdfast.topologies.pipeline.postgres.database import PostgresStore
from tests.integration.pipeline.store_work import LEASE_MS, insert, report, running, start

AT_ONCE = Template("echo", max_attempts=3, backoff=BackoffRule(FIXED, 0, 0))


async def told(store: PostgresStore, job_id: str) -> list[tuple[str, str, str]]:
    """The event, the state after it, and the reason of each entry."""
    return [(entry.what, entry.state, entry.reason) for entry in (await store.rows.history(job_id))[1:]]


async def test_history_keeps_the_report_of_a_retried_attempt(store: PostgresStore) -> None:
    """The history shows the reason, summary and traceback that the worker reported for a retried attempt."""
    run = await running(store, AT_ONCE)
    for number in (1, 2):
        output = msgspec.json.encode(Failure("ValueError", "bad", f"Traceback {number}\0"))
        await report(store, run, FAILED, output=output, failure_reason=f"reason {number}", summary="said")
        run = await start(store, run.job_id)
    assert await report(store, run) == ""
    assert await told(store, run.job_id) == [
        ("granted", "RUNNING", ""),
        ("to be retried", "QUEUED", "reason 1: said"),
        ("granted", "RUNNING", ""),
        ("to be retried", "QUEUED", "reason 2: said"),
        ("granted", "RUNNING", ""),
        ("finished", "DONE", ""),
    ]
    history = await store.rows.history(run.job_id)
    assert [entry.position for entry in history] == list(range(1, 8))
    assert [one.detail for one in attempts(history)] == ["Traceback 1\ufffd", "Traceback 2\ufffd", ""]


@pytest.mark.parametrize(
    ("is_spent", "why"), [(True, "disconnected, a loss"), (False, "released, not counted")], ids=["spent", "unspent"]
)
async def test_lost_leases_say_whether_they_counted(store: PostgresStore, is_spent: bool, why: str) -> None:  # noqa: FBT001 - a parameter
    """The history shows a lost lease as an entry of its own, with the reason."""
    run = await running(store)
    await store.leases.release("w", [run.token], is_spent=is_spent)
    assert (await told(store, run.job_id))[-1] == ("lease lost", "QUEUED", why)


async def test_last_loss_ends_the_history(store: PostgresStore) -> None:
    """After the last permitted loss the job is FAILED, and its last entry says that the lease expired."""
    run = await running(store, Template("echo", max_losses=0), lease_ms=0)
    assert await store.claims.expire(10) == 1
    assert (await told(store, run.job_id))[-1] == ("lease lost", "FAILED", "expired, a loss")


async def test_cancel_stands_where_it_was_asked_for(store: PostgresStore) -> None:
    """The history shows a cancel request between the grant and the end of the attempt that was running."""
    run = await running(store, AT_ONCE)
    await report(store, run, FAILED, failure_reason="first")
    run = await start(store, run.job_id, lease_ms=LEASE_MS)
    await store.rows.cancel(run.job_id, "enough")
    expected = [
        ("granted", "RUNNING", ""),
        ("to be retried", "QUEUED", "first"),
        ("granted", "RUNNING", ""),
        ("cancel requested", "RUNNING", "enough"),
    ]
    assert await told(store, run.job_id) == expected
    await report(store, run, CANCELED)
    assert await told(store, run.job_id) == [*expected, ("finished", "CANCELED", "enough")]


async def test_job_that_is_canceled_between_attempts_says_so(store: PostgresStore) -> None:
    """A cancel between two attempts is an entry of its own after that of the attempt."""
    run = await running(store, Template("echo", max_attempts=2, backoff=BackoffRule(FIXED, 3_600_000, 3_600_000)))
    await report(store, run, FAILED, failure_reason="first")
    await store.rows.cancel(run.job_id, "enough")
    assert (await told(store, run.job_id))[1:] == [
        ("to be retried", "QUEUED", "first"),
        ("canceled", "CANCELED", "enough"),
    ]


async def test_job_that_waits_was_submitted(store: PostgresStore) -> None:
    """The history of a waiting job consists of its submit."""
    job_id = await insert(store)
    (entry,) = await store.rows.history(job_id)
    assert (entry.what, entry.state, entry.job_id) == ("submitted", "QUEUED", job_id)
    assert entry.reason == "type echo, queue default, priority 5"
