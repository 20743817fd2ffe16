"""Restarts: accepted jobs are kept, and workers continue with their leases."""

from holdfast.core.capabilities import Capability
from holdfast.core.lifecycle import DONE, QUEUED
from holdfast.core.model import Extra, QueueMode
from holdfast.limits import LOSSES_MAX
from holdfast.ports import JobDraft
from holdfast.testing.conformance.event_feed import reader
from holdfast.testing.conformance.harness import SHORT_LEASE_MS, Control, needs
from holdfast.testing.conformance.workplace import Workplace


class TestRestarting:
    """The backend ends, cleanly or not, and is started on the same jobs."""

    @needs(Control.RESTART)
    async def test_jobs_and_results_are_there_afterwards(self, place: Workplace) -> None:
        """Accepted jobs and reported results are unchanged after a restart."""
        done = await place.run(await place.worker(), b"in", b"out")
        queued = await place.submit(b"waits", extra=Extra(labels=(("a", "b"),)))
        before = [await place.jobs.get(done), await place.jobs.get(queued)]
        await place.harness.restart()
        assert [await place.jobs.get(done), await place.jobs.get(queued)] == before
        assert (await place.jobs.result(done)).output == b"out"
        assert await place.jobs.payload(queued) == b"waits"

    @needs(Control.RESTART, Capability.ORDER)
    async def test_waiting_jobs_are_run_in_their_order_afterwards(self, place: Workplace) -> None:
        """A restart keeps the order of waiting jobs."""
        ids = await place.submit_many(5)
        await place.harness.restart()
        hand = await place.worker(slots=5)
        assert [lease.job_id for lease in await hand.take_in_turn(5)] == ids

    @needs(Control.RESTART)
    async def test_keys_still_find_their_jobs(self, place: Workplace) -> None:
        """Request ids and unique keys find their jobs after a restart."""
        drafts = [JobDraft(extra=Extra(request_id=place.name("r"))), JobDraft(extra=Extra(unique_key="u"))]
        before = await place.jobs.submit([place.template()], drafts)
        await place.harness.restart()
        after = await place.jobs.submit([place.template()], drafts)
        assert (after.job_ids, after.existing) == (before.job_ids, frozenset({0, 1}))

    @needs(Control.RESTART)
    async def test_worker_goes_on_with_its_lease_afterwards(self, place: Workplace) -> None:
        """A worker that names its lease after a restart keeps it, and can report under it."""
        job_id = await place.submit()
        (lease,) = await (await place.worker("back")).take()
        await place.harness.restart()
        again = await place.worker("back", held={lease.token: job_id})
        assert again.revoked == []
        await again.done(lease, b"kept")
        job, result = await place.jobs.settled(job_id)
        assert (job.state, job.attempts, result.output) == (DONE, 1, b"kept")

    @needs(Control.RESTART, lease_ms=SHORT_LEASE_MS)
    async def test_lease_of_a_worker_that_does_not_come_back_runs_out(self, place: Workplace) -> None:
        """The job of a worker that does not come back is granted to another one, under a larger token."""
        job_id = await place.submit(max_losses=LOSSES_MAX)
        (before,) = await (await place.worker("gone")).take()
        await place.harness.restart()
        (after,) = await (await place.worker("other")).take()
        assert (after.job_id, after.token > before.token) == (job_id, True)

    @needs(Control.RESTART)
    async def test_canceled_job_stays_canceled(self, place: Workplace) -> None:
        """A cancel that was answered is durable."""
        job_id = await place.submit()
        await place.jobs.cancel(job_id, "for good")
        await place.harness.restart()
        assert (await place.jobs.result(job_id)).summary == "for good"
        hand = await place.worker()
        await hand.session.want(1)
        assert await hand.rest() == []

    @needs(Control.RESTART)
    async def test_delayed_job_keeps_its_time(self, place: Workplace) -> None:
        """A restart does not change the time when a job is due."""
        job_id = (await place.submit_draft(JobDraft(delay_ms=3_600_000))).job_ids[0]
        before = await place.jobs.get(job_id)
        await place.harness.restart()
        after = await place.jobs.get(job_id)
        assert (after.state, after.not_before_ms) == (QUEUED, before.not_before_ms)

    @needs(Control.RESTART, Capability.ADMINISTRATION)
    async def test_paused_queue_stays_paused(self, place: Workplace) -> None:
        """The mode of a queue is durable."""
        await place.admin.set_queue_mode(place.queue, QueueMode.PAUSED, "maintenance")
        await place.harness.restart()
        (view,) = [queue for queue in await place.admin.queues() if queue.name == place.queue]
        assert (view.mode, view.reason) == (QueueMode.PAUSED, "maintenance")

    @needs(Control.RESTART, Capability.FEED)
    async def test_feed_is_resumed_over_a_restart(self, place: Workplace) -> None:
        """A reader resumes from its position after a restart, and receives every entry once."""
        one = await reader(place)
        first = await place.submit_many(3)
        await one.until(first[-1], "submitted")
        await one.close()
        missed = await place.submit_many(3)
        await place.harness.restart()
        two = await reader(place, one.position)
        later = await place.submit()
        await two.until(later, "submitted")
        ids = [*first, *missed, later]
        assert [job_id for job_id, _ in one.about(ids) + two.about(ids)] == ids
        await two.close()

    @needs(Control.RESTART, Capability.HISTORY)
    async def test_history_reaches_back_over_a_restart(self, place: Workplace) -> None:
        """The history of a job includes the events before a restart."""
        job_id = await place.submit()
        await place.harness.restart()
        await place.jobs.cancel(job_id, "")
        assert [entry.what for entry in await place.feed.history(job_id)] == ["submitted", "canceled"]
