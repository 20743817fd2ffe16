"""Each state change of a job is logged by the process whose transaction made it."""

import msgspec
import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from holdfast.core.lifecycle import CANCELED
from holdfast.core.model import Extra
from holdfast.ports import JobDraft
from holdfast.testing.conformance.workplace import accepted
from holdfast.topologies.zookeeper.backend.job_api import NodeJobs
from tests.integration.zookeeper.faults import DRAFT, ENDS, JOB, SUBMITS, TAKES, Bidding
from tests.integration.zookeeper.test_races import expire, submit
from tests.integration.zookeeper.test_stewards import steward

URGENT = msgspec.structs.replace(JOB, priority=7, max_attempts=2)


def told(lines: list[EventDict], job_id: str) -> list[tuple[object, ...]]:
    """The log lines of one job: event, old and new state, worker, attempt and reason."""
    names = ("event", "old_state", "new_state", "worker_id", "attempt")
    return [
        (*(line[name] for name in names), line.get("reason", ""))
        for line in lines
        if line.get("job_id") == job_id and line["event"] in ("transition", "cancel_requested")
    ]


async def test_attempts_of_a_job_can_be_read_from_the_log(bidding: Bidding) -> None:
    """The log has a job's submit, bids, failure, cancel request and end, each with worker, attempt and priority."""
    await steward(bidding)
    jobs = NodeJobs(await bidding.client())
    with capture_logs() as lines:
        (job_id,) = accepted(await jobs.submit([URGENT], [DRAFT]))
        hand = await bidding.worker("w")
        (lease,) = await hand.take()
        await hand.failed(lease, "it broke")
        (lease,) = await hand.take()
        for _ in range(2):
            await jobs.cancel(job_id, "enough")
        await hand.done(lease)
    assert told(lines, job_id) == [
        ("transition", "", "QUEUED", "", 0, ""),
        ("transition", "QUEUED", "RUNNING", "w", 1, ""),
        ("transition", "RUNNING", "QUEUED", "w", 1, "it broke"),
        ("transition", "QUEUED", "RUNNING", "w", 2, ""),
        ("cancel_requested", "RUNNING", "RUNNING", "w", 2, "enough"),
        ("transition", "RUNNING", "DONE", "w", 2, ""),
    ]
    assert {line["priority"] for line in lines if line.get("job_id") == job_id} == {7}


async def test_recovery_of_a_lost_worker_is_logged_by_the_steward(bidding: Bidding) -> None:
    """The steward logs a recovery with the lost worker and the reason."""
    await steward(bidding)
    jobs = NodeJobs(await bidding.client())
    job_id = await submit(jobs)
    await (await bidding.worker("lost")).take()
    with capture_logs() as lines:
        await expire(bidding.connection_of("lost"))
        await (await bidding.worker("heir")).take()
    assert told(lines, job_id) == [
        ("transition", "RUNNING", "QUEUED", "lost", 1, "its worker was lost"),
        ("transition", "QUEUED", "RUNNING", "heir", 2, ""),
    ]


async def test_job_that_is_canceled_while_it_waits_is_logged(bidding: Bidding) -> None:
    """The cancel of a waiting job is logged with the caller's reason and without a worker."""
    jobs = NodeJobs(await bidding.client())
    job_id = await submit(jobs)
    with capture_logs() as lines:
        assert (await jobs.cancel(job_id, "enough")).state == CANCELED
        await jobs.cancel(job_id, "enough")
    assert told(lines, job_id) == [("transition", "QUEUED", "CANCELED", "", 0, "enough")]


@pytest.mark.parametrize("loss", ["lose_answer", "lose_request"])
@pytest.mark.parametrize("extra", [None, Extra(request_id="r", unique_key="u")])
async def test_transition_whose_answer_was_lost_is_logged_once(
    bidding: Bidding, loss: str, extra: Extra | None
) -> None:
    """A state change whose request or response was lost is logged once."""
    client = await bidding.client()
    jobs = NodeJobs(client)
    with capture_logs() as lines:
        getattr(client, loss)(SUBMITS)
        (job_id,) = accepted(await jobs.submit([JOB], [JobDraft(payload=b"in", extra=extra)]))
        hand = await bidding.worker("w")
        getattr(bidding.connection_of("w"), loss)(TAKES)
        (lease,) = await hand.take()
        getattr(bidding.connection_of("w"), loss)(ENDS)
        await hand.done(lease)
    assert [line[2] for line in told(lines, job_id)] == ["QUEUED", "RUNNING", "DONE"]


async def test_submission_that_finds_a_job_is_no_transition(bidding: Bidding) -> None:
    """A repeated request id is logged once, and a batch has one log line per job."""
    jobs = NodeJobs(await bidding.client())
    draft = JobDraft(extra=Extra(request_id="r"))
    with capture_logs() as lines:
        for _ in range(2):
            await jobs.submit([JOB], [draft])
        ids = accepted(await jobs.submit([JOB], [DRAFT] * 3))
    assert len([line for line in lines if line["event"] == "transition"]) == 4
    assert all(told(lines, job_id) for job_id in ids)
