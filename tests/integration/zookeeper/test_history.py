"""A job's history over ZooKeeper: its attempts, their bounds and their removal."""

import msgspec

from holdfast.core.commands import ReportRow
from holdfast.core.failure import Failure
from holdfast.core.history import attempts
from holdfast.core.lifecycle import DONE, FAILED
from holdfast.core.model import FIXED, BackoffRule
from holdfast.testing.conformance.workplace import Hand, accepted
from holdfast.topologies.zookeeper.backend.job_api import NodeJobs
from tests.integration.zookeeper.faults import DRAFT, JOB, Bidding, makes
from tests.integration.zookeeper.test_races import expire, submit
from tests.integration.zookeeper.test_stewards import OVER, cleaner_of, everything, steward

PERSISTENT = msgspec.structs.replace(JOB, max_attempts=20, backoff=BackoffRule(FIXED, 0, 0))


async def fail(hand: Hand, number: int) -> None:
    """Takes the job and fails it with the longest permitted traceback."""
    (lease,) = await hand.take()
    output = msgspec.json.encode(Failure("ValueError", f"bad {number}", "x" * 60_000 + f"end {number}"))
    await hand.report(ReportRow(lease.job_id, lease.token, FAILED, output, failure_reason=f"bad {number}"))


async def test_last_attempts_are_kept_with_bounded_tracebacks(bidding: Bidding) -> None:
    """The history of many attempts has the last ten and the final one, each with the end of its traceback."""
    await steward(bidding)
    jobs = NodeJobs(await bidding.client())
    (job_id,) = accepted(await jobs.submit([PERSISTENT], [DRAFT]))
    hand = await bidding.worker("w")
    for number in range(1, 13):
        await fail(hand, number)
    (lease,) = await hand.take()
    await hand.done(lease)
    told = attempts(await jobs.history(job_id), (await jobs.get(job_id)).attempts)
    assert [attempt.number for attempt in told] == list(range(3, 14))
    assert [attempt.outcome for attempt in told] == ["FAILED"] * 10 + ["DONE"]
    assert [attempt.reason for attempt in told[:10]] == [f"bad {number}" for number in range(3, 13)]
    assert all(attempt.detail.endswith(f"end {attempt.number}") for attempt in told[:10])
    assert all(len(attempt.detail) <= 8_192 for attempt in told)


async def test_job_with_a_history_is_forgotten_whole(bidding: Bidding) -> None:
    """When a client or a steward deletes a job, its stored attempts are deleted too."""
    await steward(bidding)
    client = await bidding.client()
    jobs = NodeJobs(client)
    for is_client in (True, False):
        (job_id,) = accepted(await jobs.submit([PERSISTENT], [DRAFT]))
        hand = await bidding.worker("w")
        await fail(hand, 1)
        (lease,) = await hand.take()
        await hand.done(lease)
        await hand.session.close()
        await (jobs.forget(job_id) if is_client else cleaner_of(client).look(OVER))
        assert [leaf for leaf in await everything(client, client.paths.root) if job_id in leaf] == []


async def test_attempt_that_was_lost_is_told_with_its_worker(bidding: Bidding) -> None:
    """The steward stores the attempt of a lost worker, and the last loss is in the history with the job's end."""
    await steward(bidding)
    jobs = NodeJobs(await bidding.client())
    (job_id,) = accepted(await jobs.submit([msgspec.structs.replace(JOB, max_losses=1)], [DRAFT]))
    for name in ("first", "second"):
        hand = await bidding.worker(name)
        await hand.take()
        await expire(bidding.connection_of(name))
        await hand.until(lambda: bool(hand.revoked))  # noqa: B023 - it is over before the next one comes
    await jobs.settled(job_id)
    told = attempts(await jobs.history(job_id))
    assert [(attempt.worker, attempt.outcome) for attempt in told] == [("first", "LOST"), ("second", "LOST")]
    assert "its worker was lost" in told[0].reason
    assert "WORKER_LOST" in told[1].reason


async def test_attempt_whose_end_was_not_answered_is_told_once(bidding: Bidding) -> None:
    """An attempt whose end got no response is in the history once."""
    await steward(bidding)
    jobs = NodeJobs(await bidding.client())
    (job_id,) = accepted(await jobs.submit([PERSISTENT], [DRAFT]))
    hand = await bidding.worker("w")
    bidding.connection_of("w").lose_answer(makes("/executions"))
    await fail(hand, 1)
    (lease,) = await hand.take()
    await hand.done(lease)
    assert [attempt.outcome for attempt in attempts(await jobs.history(job_id))] == ["FAILED", "DONE"]


async def test_job_that_succeeds_at_once_keeps_no_attempts(bidding: Bidding) -> None:
    """A job that succeeds at once stores no attempts, and its history comes from its record and result."""
    client = await bidding.client()
    jobs = NodeJobs(client)
    job_id = await submit(jobs)
    hand = await bidding.worker("w")
    (lease,) = await hand.take()
    await hand.done(lease)
    assert await client.exists(client.paths.executions(job_id)) is None
    assert [(entry.what, entry.worker, entry.state) for entry in await jobs.history(job_id)] == [
        ("submitted", "", "QUEUED"),
        ("granted", "w", "RUNNING"),
        ("finished", "w", DONE.name),
    ]
