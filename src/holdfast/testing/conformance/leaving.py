"""Leaving: workers that drain, hand back, and go."""

from holdfast.core.lifecycle import DONE, RUNNING
from holdfast.testing.conformance.workplace import Workplace


class TestLeaving:
    """Workers that go in good order."""

    async def test_draining_worker_is_given_nothing_more(self, place: Workplace) -> None:
        """After `drain` no lease comes, although there was room and there are jobs."""
        hand = await place.worker(slots=5)
        await hand.session.want(5)
        assert await hand.rest() == []
        job_id = await place.submit()
        (lease,) = await (await place.worker("other")).take()
        assert lease.job_id == job_id

    async def test_draining_worker_gets_what_was_granted_before(self, place: Workplace) -> None:
        """When it hears that it is drained, it has heard of every lease that is its own."""
        ids = await place.submit_many(10)
        hand = await place.worker(slots=10)
        await hand.session.want(10)
        mine = {lease.job_id for lease in await hand.rest()}
        for job_id in ids:
            job = await place.jobs.get(job_id)
            assert (job.state == RUNNING) == (job_id in mine)

    async def test_draining_worker_finishes_what_it_has(self, place: Workplace) -> None:
        """Its reports count as before."""
        job_id = await place.submit()
        hand = await place.worker()
        (lease,) = await hand.take()
        await hand.rest()
        await hand.done(lease)
        assert (await place.jobs.get(job_id)).state == DONE

    async def test_released_lease_goes_to_another_and_spends_nothing(self, place: Workplace) -> None:
        """A job handed back unrun loses neither an attempt nor a worker."""
        job_id = await place.submit(max_losses=1)
        hand = await place.worker("first")
        (lease,) = await hand.take()
        await hand.session.release([lease.token])
        (again,) = await (await place.worker("second")).take()
        job = await place.jobs.get(job_id)
        assert (again.job_id, job.failures, job.losses) == (job_id, 0, 0)
        assert again.token > lease.token

    async def test_report_after_a_release_changes_nothing(self, place: Workplace) -> None:
        """Who has handed a lease back no longer speaks for the job."""
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
        """What a drained worker still held goes back as if it had been handed back."""
        job_id = await place.submit(max_losses=1)
        hand = await place.worker("first")
        await hand.take()
        await hand.rest()
        await hand.session.close()
        await (await place.worker("second")).take()
        assert (await place.jobs.get(job_id)).losses == 0

    async def test_room_of_a_worker_that_left_is_gone(self, place: Workplace) -> None:
        """A job that comes later waits for a worker that is there."""
        hand = await place.worker("gone")
        await hand.session.want(10)
        await place.gone(hand)
        job_id = await place.submit()
        assert [lease.job_id for lease in await (await place.worker("here")).take()] == [job_id]
        assert (await place.jobs.get(job_id)).attempts == 1
