"""Cancellation: certain while a job waits, a request while it runs, and without effect once it has ended."""

import asyncio

from holdfast.core.lifecycle import CANCELED, DONE, FAILED, RUNNING
from holdfast.testing.conformance.workplace import Workplace


class TestCanceling:
    """Cancels, and their races with grants and reports."""

    async def test_queued_job_ends_at_once_and_never_runs(self, place: Workplace) -> None:
        """Once the cancel is answered, the job is not granted to any worker."""
        job_id = await place.submit()
        reply = await place.jobs.cancel(job_id, "not needed")
        assert (reply.state, reply.was_terminal) == (CANCELED, False)
        hand = await place.worker()
        await hand.session.want(1)
        assert await hand.rest() == []
        assert (await place.jobs.get(job_id)).attempts == 0

    async def test_reason_is_the_summary_of_the_result(self, place: Workplace) -> None:
        """The reason of the cancel is the summary of the result."""
        job_id = await place.submit()
        await place.jobs.cancel(job_id, "not needed")
        result = await place.jobs.result(job_id)
        assert (result.state, result.summary) == (CANCELED, "not needed")

    async def test_cancel_without_a_reason_is_still_explained(self, place: Workplace) -> None:
        """A job that was canceled without a reason, waiting or running, has a summary that says so."""
        running = await place.submit()
        hand = await place.worker()
        (lease,) = await hand.take()
        waiting = await place.submit()
        for job_id in (running, waiting):
            await place.jobs.cancel(job_id, "")
        await hand.canceled(lease)
        for job_id in (running, waiting):
            assert (await place.jobs.result(job_id)).summary == "canceled; no reason was given"

    async def test_holder_of_a_running_job_is_told(self, place: Workplace) -> None:
        """The worker receives the token of the canceled job, and its report ends the job as canceled."""
        job_id = await place.submit()
        hand = await place.worker()
        (lease,) = await hand.take()
        reply = await place.jobs.cancel(job_id, "stop")
        assert (reply.state, reply.was_terminal) == (RUNNING, False)
        await hand.until_beating(lambda: lease.token in hand.cancels)
        assert (await place.jobs.get(job_id)).cancel_requested
        await hand.canceled(lease)
        assert (await place.jobs.get(job_id)).state == CANCELED

    async def test_work_that_was_done_before_the_cancel_reached_it_counts(self, place: Workplace) -> None:
        """A report of DONE under a valid lease takes precedence over a cancel request."""
        job_id = await place.submit()
        hand = await place.worker()
        (lease,) = await hand.take()
        await place.jobs.cancel(job_id, "stop")
        await hand.done(lease, b"out")
        result = await place.jobs.result(job_id)
        assert (result.state, result.output) == (DONE, b"out")

    async def test_ended_job_stays_as_it_is(self, place: Workplace) -> None:
        """A cancel of an ended job changes nothing, and the answer says that the job had ended."""
        job_id = await place.run(await place.worker())
        reply = await place.jobs.cancel(job_id, "too late")
        assert (reply.state, reply.was_terminal) == (DONE, True)
        assert (await place.jobs.get(job_id)).state == DONE

    async def test_cancel_can_be_repeated(self, place: Workplace) -> None:
        """The second cancel finds a canceled job, and the first reason stays."""
        job_id = await place.submit()
        await place.jobs.cancel(job_id, "first")
        reply = await place.jobs.cancel(job_id, "second")
        assert (reply.state, reply.was_terminal) == (CANCELED, True)
        assert (await place.jobs.result(job_id)).summary == "first"

    async def test_job_whose_holder_is_lost_after_the_cancel_does_not_come_back(self, place: Workplace) -> None:
        """A job with a cancel request whose worker is lost ends as canceled, and is not granted again."""
        job_id = await place.submit()
        hand = await place.worker()
        await hand.take()
        await place.jobs.cancel(job_id, "stop")
        await hand.session.close()
        assert (await place.reached(job_id, CANCELED)).attempts == 1

    async def test_attempt_that_fails_after_the_cancel_is_not_repeated(self, place: Workplace) -> None:
        """A failed attempt of a job with a cancel request is not retried."""
        job_id = await place.submit(max_attempts=5)
        hand = await place.worker()
        (lease,) = await hand.take()
        await place.jobs.cancel(job_id, "stop")
        await hand.failed(lease)
        assert (await place.jobs.get(job_id)).state == CANCELED

    async def test_canceled_report_without_a_request_is_a_failed_attempt(self, place: Workplace) -> None:
        """A report of CANCELED without a cancel request counts as a failed attempt."""
        job_id = await place.submit()
        hand = await place.worker()
        (lease,) = await hand.take()
        await hand.canceled(lease)
        assert (await place.jobs.get(job_id)).state == FAILED

    async def test_cancels_and_grants_that_race_agree(self, place: Workplace) -> None:
        """Each of many canceled jobs either ends unrun, or was granted and its worker receives the cancel."""
        ids = await place.submit_many(50)
        hand = await place.worker(slots=50)
        await hand.session.want(50)
        replies = await asyncio.gather(*(place.jobs.cancel(job_id, "race") for job_id in ids))
        granted = {lease.job_id: lease.token for lease in await hand.rest()}
        asked = {job_id for job_id, reply in zip(ids, replies, strict=True) if reply.state == RUNNING}
        assert set(granted) <= asked
        await hand.until_beating(lambda: set(hand.cancels) >= set(granted.values()))
        for job_id in set(ids) - set(granted):
            await place.reached(job_id, CANCELED)
        for job_id in set(ids) - asked:
            assert (await place.jobs.get(job_id)).state == CANCELED
