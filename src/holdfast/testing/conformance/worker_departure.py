"""Departure of workers: drain, release and close."""

from holdfast.core.lifecycle import DONE, RUNNING
from holdfast.testing.conformance.workplace import Workplace


class TestLeaving:
    """Workers that leave cleanly."""

    async def test_draining_worker_is_given_nothing_more(self, place: Workplace) -> None:
        """After `drain` a worker receives no lease, although it has requested some and there are jobs."""
        hand = await place.worker(slots=5)
        await hand.session.want(5)
        assert await hand.rest() == []
        job_id = await place.submit()
        (lease,) = await (await place.worker("other")).take()
        assert lease.job_id == job_id

    async def test_draining_worker_receives_leases_granted_before(self, place: Workplace) -> None:
        """When the drain is confirmed, the worker has received every lease that it holds."""
        ids = await place.submit_many(10)
        hand = await place.worker(slots=10)
        await hand.session.want(10)
        mine = {lease.job_id for lease in await hand.rest()}
        for job_id in ids:
            job = await place.jobs.get(job_id)
            assert (job.state == RUNNING) == (job_id in mine)

    async def test_draining_worker_can_report_outcomes(self, place: Workplace) -> None:
        """A draining worker can still report outcomes."""
        job_id = await place.submit()
        hand = await place.worker()
        (lease,) = await hand.take()
        await hand.rest()
        await hand.done(lease)
        assert (await place.jobs.get(job_id)).state == DONE

    async def test_released_lease_goes_to_another_and_spends_nothing(self, place: Workplace) -> None:
        """A released job is granted to another worker, and counts neither a failure nor a loss."""
        job_id = await place.submit(max_losses=1)
        hand = await place.worker("first")
        (lease,) = await hand.take()
        await hand.session.release([lease.token])
        (again,) = await (await place.worker("second")).take()
        job = await place.jobs.get(job_id)
        assert (again.job_id, job.failures, job.losses) == (job_id, 0, 0)
        assert again.token > lease.token

    async def test_report_after_a_release_changes_nothing(self, place: Workplace) -> None:
        """A report under a released lease changes nothing."""
        job_id = await place.submit()
        hand = await place.worker("first")
        (lease,) = await hand.take()
        await hand.session.release([lease.token])
        await place.jobs.get(job_id)
        (again,) = await (await place.worker("second")).take()
        await hand.done(lease, b"after all")
        job = await place.jobs.get(job_id)
        assert (job.state, job.token) == (RUNNING, again.token)

    async def test_worker_that_leaves_in_good_order_spends_no_loss(self, place: Workplace) -> None:
        """A job that a drained worker still holds when it leaves goes back without a loss."""
        job_id = await place.submit(max_losses=1)
        hand = await place.worker("first")
        await hand.take()
        await hand.rest()
        await hand.session.close()
        await (await place.worker("second")).take()
        assert (await place.jobs.get(job_id)).losses == 0

    async def test_room_of_a_worker_that_left_is_gone(self, place: Workplace) -> None:
        """A job that is submitted after a worker has left is granted to a connected worker only."""
        hand = await place.worker("gone")
        await hand.session.want(10)
        await place.gone(hand)
        job_id = await place.submit()
        assert [lease.job_id for lease in await (await place.worker("here")).take()] == [job_id]
        assert (await place.jobs.get(job_id)).attempts == 1
