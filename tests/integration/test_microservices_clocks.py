"""Services whose clocks differ: a step of the wall clock that only some of them have seen stays in their log time.

The job service sets the times of a job, so its clock decides when the job is due.
"""

import pytest

from holdfast.core.lifecycle import QUEUED
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.topologies.microservices.services.queue_sweeper import SETTLED_MS
from tests.integration.microservices_world import world

HOUR_MS = 3_600_000

both_ways = pytest.mark.parametrize("offset_ms", [HOUR_MS, -HOUR_MS], ids=["ahead", "behind"])


@both_ways
async def test_sweep_finds_jobs_despite_a_wrong_clock_of_the_job_service(offset_ms: int) -> None:
    """A job in no queue is enqueued again once it has existed for a while, and not before."""
    async with world(job_clock_offset_ms=offset_ms) as here:
        job_id = await here.submit()
        await here.queue.RemoveJobIfPresent(pb.RemoveJobIfPresentRequest(job_id=job_id))
        await here.pass_time(SETTLED_MS - 250)
        assert job_id not in here.line
        await here.pass_time(6_000)
        assert job_id in here.line
        assert (await here.take()).job_id == job_id


@both_ways
async def test_delay_has_its_length_despite_a_wrong_clock_of_the_job_service(offset_ms: int) -> None:
    """A delayed job is handed out after its delay: neither an hour later, nor too early."""
    async with world(job_clock_offset_ms=offset_ms) as here:
        job_id = await here.submit(delay_ms=10_000)
        await here.pass_time(9_500)
        assert not (await here.fetch()).assigned
        await here.pass_time(500)
        assert (await here.take()).job_id == job_id


@both_ways
async def test_sweep_keeps_the_delay_of_a_job(offset_ms: int) -> None:
    """A delayed job that was in no queue is handed out after its delay as well."""
    async with world(job_clock_offset_ms=offset_ms) as here:
        job_id = await here.submit(delay_ms=10_000)
        await here.queue.RemoveJobIfPresent(pb.RemoveJobIfPresentRequest(job_id=job_id))
        await here.pass_time(10_000)
        assert not (await here.fetch()).assigned
        await here.pass_time(SETTLED_MS + 6_000)
        assert (await here.take()).job_id == job_id


@both_ways
async def test_retry_waits_for_its_backoff_despite_a_wrong_clock_of_the_job_service(offset_ms: int) -> None:
    """A failed job is due again after the backoff of its retry, by the clock of the job service."""
    async with world(job_clock_offset_ms=offset_ms) as here:
        job_id = await here.submit("brew", max_attempts=2)
        work = await here.fetch("w", "brew")
        assert await here.report(work, public_pb.JOB_OUTCOME_FAILED) == ""
        record = await here.record(job_id)
        assert int(record.summary.status) == QUEUED
        wait_ms = record.options.not_before_ms - record.now_ms
        assert 0 < wait_ms < HOUR_MS
        assert not (await here.fetch("w", "brew")).assigned
        await here.pass_time(wait_ms)
        assert (await here.fetch("w", "brew")).job_id == job_id
