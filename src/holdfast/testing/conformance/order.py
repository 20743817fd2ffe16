"""The order in which jobs are granted, and the workers to which they are granted."""

from holdfast.core.capabilities import Capability
from holdfast.core.lifecycle import QUEUED
from holdfast.ports import JobDraft
from holdfast.testing.conformance.harness import Control, needs
from holdfast.testing.conformance.workplace import Workplace, accepted

HOUR_MS = 3_600_000
#: On a slow backend a short delay may pass before the worker requests a lease; then the test tries the next delay.
DELAYS_MS = (150, 1_500, 15_000)
#: A released job may take a moment until it can be granted, and another job may be granted first; so the test retries.
RELEASES = 10


async def order(place: Workplace, count: int) -> list[str]:
    """Returns the ids of the next jobs, in the order in which they are granted to one worker."""
    hand = await place.worker("order", slots=count)
    return [lease.job_id for lease in await hand.take_in_turn(count)]


class TestOrdering:
    """The order of grants, and the choice of workers."""

    @needs(Capability.ORDER)
    async def test_jobs_come_in_the_order_in_which_they_were_submitted(self, place: Workplace) -> None:
        """Jobs are granted first in, first out, within a batch and across batches."""
        ids = [*await place.submit_many(5), await place.submit(), *await place.submit_many(5)]
        assert await order(place, 11) == ids

    @needs(Capability.ORDER)
    async def test_larger_priority_comes_first(self, place: Workplace) -> None:
        """A job of larger priority is granted before older jobs of smaller priority."""
        low, high, middle = [await place.submit(priority=priority) for priority in (0, 9, 5)]
        assert await order(place, 3) == [high, middle, low]

    async def test_delayed_job_waits_for_its_time(self, place: Workplace) -> None:
        """A delayed job is granted after a job that is due now, and does not start before its time."""
        hand = await place.worker(slots=2 * len(DELAYS_MS))
        granted: list[str] = []
        for delay_ms in DELAYS_MS:
            late = accepted(await place.submit_draft(JobDraft(delay_ms=delay_ms)))[0]
            now = await place.submit()
            granted = [lease.job_id for lease in await hand.take_in_turn(2)]
            job = await place.jobs.get(late)
            assert job.created_ms < job.not_before_ms <= job.started_ms
            if granted == [now, late]:
                return
        raise AssertionError(f"the job that is due now was never granted before the delayed one: {granted}")

    async def test_job_is_due_at_the_later_of_delay_and_time(self, place: Workplace) -> None:
        """A job with a delay and a start time is due at the later of both."""
        at_ms = (await place.submit_draft(JobDraft())).at_ms
        draft = JobDraft(delay_ms=1, not_before_ms=at_ms + HOUR_MS)
        job_id = accepted(await place.submit_draft(draft))[0]
        assert (await place.jobs.get(job_id)).not_before_ms == at_ms + HOUR_MS

    @needs(Control.CLOCK)
    async def test_job_that_is_due_in_an_hour_comes_in_an_hour(self, place: Workplace) -> None:
        """A job that is due in an hour is granted in an hour, and not before."""
        job_id = accepted(await place.submit_draft(JobDraft(delay_ms=HOUR_MS)))[0]
        hand = await place.worker()
        await hand.session.want(1)
        await place.harness.advance(HOUR_MS - 60_000)
        assert (await place.jobs.get(job_id)).state == QUEUED
        await hand.session.extend()
        await place.harness.advance(61_000)
        await hand.session.extend()
        assert [lease.job_id for lease in await hand.leases()] == [job_id]

    @needs(Control.CLOCK, Capability.ORDER, Capability.AGING)
    async def test_waiting_makes_a_job_more_urgent(self, place: Workplace) -> None:
        """A job of low priority that has waited long is granted before a new one of higher priority."""
        old = await place.submit(priority=4)
        await place.harness.advance(10 * 60_000)
        fresh = await place.submit(priority=5)
        assert await order(place, 2) == [old, fresh]

    @needs(Capability.ORDER)
    async def test_job_handed_back_keeps_its_place(self, place: Workplace) -> None:
        """A released job is granted again before jobs that were submitted after it."""
        hand, other = await place.worker("first"), await place.worker("second", slots=2)
        granted: list[str] = []
        for _ in range(RELEASES):
            first, second = await place.submit_many(2)
            (lease,) = await hand.take()
            assert lease.job_id == first
            await hand.session.release([lease.token])
            await place.reached(first, QUEUED)
            leases = await other.take_in_turn(2)
            for each in leases:
                await other.done(each)
            granted = [each.job_id for each in leases]
            if granted == [first, second]:
                return
        raise AssertionError(f"the released job never kept its place: {granted}")

    async def test_worker_is_given_only_types_that_it_knows(self, place: Workplace) -> None:
        """A worker does not receive jobs of other types."""
        other = await place.submit(type=place.name("other"))
        mine = await place.submit()
        hand = await place.worker(slots=2)
        await hand.session.want(2)
        assert [lease.job_id for lease in await hand.leases()] == [mine]
        assert await hand.rest() == []
        assert (await place.jobs.get(other)).state == QUEUED

    async def test_worker_is_given_only_queues_that_it_serves(self, place: Workplace) -> None:
        """A worker does not receive jobs of other queues, and a worker that names no queue serves all."""
        other = await place.submit(queue=place.name("other"))
        mine = await place.submit()
        picky = await place.worker("picky", queues=[place.queue], slots=2)
        await picky.session.want(2)
        assert [lease.job_id for lease in await picky.leases()] == [mine]
        assert await picky.rest() == []
        assert await order(place, 1) == [other]

    @needs(Capability.ORDER)
    async def test_no_more_is_granted_than_is_wanted(self, place: Workplace) -> None:
        """A worker receives as many leases as it has requested, and more only after another request."""
        ids = await place.submit_many(5)
        hand = await place.worker(slots=5)
        first = await hand.take(2)
        second = await hand.take(1)
        assert {lease.job_id for lease in first} == set(ids[:2])
        assert [lease.job_id for lease in second] == ids[2:3]
        assert await hand.rest() == []

    async def test_waiting_worker_is_given_a_job_when_it_comes(self, place: Workplace) -> None:
        """A request for a lease is fulfilled when a job is submitted later."""
        hand = await place.worker()
        await hand.session.want(1)
        job_id = await place.submit()
        assert [lease.job_id for lease in await hand.leases()] == [job_id]

    async def test_workers_share_the_jobs_and_none_is_given_twice(self, place: Workplace) -> None:
        """Every job is granted to exactly one of the workers that request leases."""
        ids = await place.submit_many(40)
        one, two = await place.worker("one", slots=20), await place.worker("two", slots=20)
        granted = [*await one.take(20), *await two.take(20)]
        assert sorted(lease.job_id for lease in granted) == sorted(ids)
        assert len({lease.token for lease in granted}) == 40
