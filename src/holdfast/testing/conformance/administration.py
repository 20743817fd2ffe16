"""Administration: stats, queue modes, purges and workers."""

from collections.abc import Sequence

import pytest

from holdfast.core.capabilities import Capability
from holdfast.core.lifecycle import CANCELED, QUEUED, RUNNING
from holdfast.core.model import QueueMode
from holdfast.errors import InvalidArgumentError, NotFoundError
from holdfast.ports import JobDraft, QueueView, WorkerView
from holdfast.testing.conformance.harness import needs
from holdfast.testing.conformance.workplace import Workplace, eventually


async def queue(place: Workplace) -> QueueView | None:
    """Returns the test's own queue, as operators see it."""
    return next((queue for queue in await place.admin.queues() if queue.name == place.queue), None)


async def worker(place: Workplace, worker_id: str) -> WorkerView | None:
    """Returns a worker, as operators see it."""
    return next((view for view in await place.admin.workers() if view.worker_id == worker_id), None)


def ids_of(views: Sequence[WorkerView]) -> set[str]:
    """The ids of the listed workers."""
    return {view.worker_id for view in views}


class TestAdministering:
    """Stats, queue modes, purges and workers."""

    @needs(Capability.ADMINISTRATION, is_alone=True)
    async def test_stats_count_jobs_by_state(self, place: Workplace) -> None:
        """Stats have the number of jobs in every state, and the numbers of leases, workers and slots."""
        await place.submit_many(3)
        hand = await place.worker(slots=4)
        (lease, _) = await hand.take(2)
        await hand.done(lease)
        stats = await eventually(place.admin.stats, lambda one: (one.leases, one.workers, one.slots) == (1, 1, 4))
        assert stats.states == {"QUEUED": 1, "RUNNING": 1, "DONE": 1, "FAILED": 0, "CANCELED": 0}
        assert stats.position > 0 or Capability.FEED not in place.harness.declared.present
        assert stats.cluster_id

    @needs(Capability.ADMINISTRATION)
    async def test_queue_counts_ready_delayed_and_running_jobs(self, place: Workplace) -> None:
        """Ready, delayed and running jobs are counted separately."""
        await place.submit_many(3)
        await place.submit_draft(JobDraft(delay_ms=3_600_000))
        await (await place.worker()).take()
        view = await queue(place)
        assert view is not None
        assert (view.mode, view.ready, view.delayed, view.running) == (QueueMode.OPEN, 2, 1, 1)

    @needs(Capability.ADMINISTRATION)
    async def test_queue_counts_ready_jobs_by_type(self, place: Workplace) -> None:
        """A queue has the number of its ready jobs by type, of all priorities and without delayed jobs."""
        other = place.name("other")
        await place.submit_many(2, priority=7)
        await place.submit_many(1)
        await place.submit_many(2, type=other)
        await place.submit_draft(JobDraft(delay_ms=3_600_000), type=other)
        view = await queue(place)
        assert view is not None
        assert view.types == {place.type: 3, other: 2}

    @needs(Capability.ADMINISTRATION)
    async def test_queue_without_jobs_is_not_listed(self, place: Workplace) -> None:
        """A queue without jobs that is open is not listed."""
        assert await queue(place) is None

    @needs(Capability.ADMINISTRATION)
    async def test_paused_queue_takes_jobs_and_grants_none(self, place: Workplace) -> None:
        """A paused queue grants no jobs until it is opened, and then grants those that waited."""
        await place.admin.set_queue_mode(place.queue, QueueMode.PAUSED, "maintenance")
        job_id = await place.submit()
        idle = await place.worker("idle")
        await idle.session.want(1)
        assert await idle.rest() == []
        hand = await place.worker("waiting")
        await hand.session.want(1)
        await place.admin.set_queue_mode(place.queue, QueueMode.OPEN, "")
        assert [lease.job_id for lease in await hand.leases()] == [job_id]

    @needs(Capability.ADMINISTRATION)
    async def test_job_granted_before_a_pause_runs_to_its_end(self, place: Workplace) -> None:
        """A job that was granted before the pause runs to its end."""
        job_id = await place.submit()
        hand = await place.worker()
        (lease,) = await hand.take()
        await place.admin.set_queue_mode(place.queue, QueueMode.PAUSED, "")
        await hand.done(lease, b"out")
        assert (await place.jobs.result(job_id)).output == b"out"

    @needs(Capability.ADMINISTRATION)
    async def test_draining_queue_takes_no_new_jobs_and_grants_the_others(self, place: Workplace) -> None:
        """A draining queue refuses submissions with a stable reason, and grants the jobs that it has."""
        job_id = await place.submit()
        await place.admin.set_queue_mode(place.queue, QueueMode.DRAINING, "closing")
        submitted = await place.submit_draft(JobDraft())
        assert submitted.refusals[0].reason == "QUEUE_DRAINING"
        assert [lease.job_id for lease in await (await place.worker()).take()] == [job_id]

    @needs(Capability.ADMINISTRATION)
    async def test_mode_and_reason_are_shown_even_without_jobs(self, place: Workplace) -> None:
        """A queue that is not open is listed with mode and reason, and is no longer listed once it is opened."""
        for _ in range(2):
            await place.admin.set_queue_mode(place.queue, QueueMode.PAUSED, "maintenance")
        view = await queue(place)
        assert view is not None
        assert (view.mode, view.reason, view.ready) == (QueueMode.PAUSED, "maintenance", 0)
        await place.admin.set_queue_mode(place.queue, QueueMode.OPEN, "")
        assert await queue(place) is None

    @needs(Capability.ADMINISTRATION)
    async def test_paused_queue_explains_its_jobs(self, place: Workplace) -> None:
        """The explanation of a job in a paused queue names the pause and the operator's reason."""
        await place.worker()
        await place.admin.set_queue_mode(place.queue, QueueMode.PAUSED, "maintenance")
        explanation = await place.jobs.explain(await place.submit())
        assert "paused" in explanation.sentence
        assert "maintenance" in explanation.sentence

    @needs(Capability.ADMINISTRATION)
    async def test_purge_cancels_only_waiting_jobs_of_its_queue(self, place: Workplace) -> None:
        """A purge cancels and counts the waiting jobs of its queue, and neither running jobs nor other queues."""
        running = await place.submit()
        await (await place.worker()).take()
        waiting = await place.submit_many(5)
        delayed = (await place.submit_draft(JobDraft(delay_ms=3_600_000))).job_ids[0]
        other = await place.submit(queue=place.name("other"))
        assert await place.admin.purge(place.queue, "spring cleaning") == 6
        assert {(await place.jobs.get(job_id)).state for job_id in (*waiting, delayed)} == {CANCELED}
        assert (await place.jobs.result(delayed)).summary == "spring cleaning"
        assert (await place.jobs.get(running)).state == RUNNING
        assert (await place.jobs.get(other)).state == QUEUED

    @needs(Capability.ADMINISTRATION)
    async def test_purge_of_more_than_one_slice_leaves_nothing(self, place: Workplace) -> None:
        """A purge cancels thousands of jobs, and no job that is submitted afterwards."""
        for _ in range(3):
            await place.submit_many(1_000)
        assert await place.admin.purge(place.queue, "") == 3_000
        after = await place.submit()
        assert (await place.jobs.get(after)).state == QUEUED
        assert await place.admin.purge(place.name("nobody"), "") == 0

    @needs(Capability.ADMINISTRATION)
    async def test_worker_is_listed_with_its_running_jobs(self, place: Workplace) -> None:
        """A worker is listed with the types, queues, slots and running jobs of its session."""
        await place.submit()
        hand = await place.worker(queues=[place.queue], slots=3)
        await hand.take()
        view = await eventually(lambda: worker(place, hand.worker_id), lambda found: found and found.running)
        assert view is not None
        assert (view.types, view.queues, view.slots, view.running) == ([place.type], [place.queue], 3, 1)
        assert (view.is_draining, view.is_streaming) == (False, True)

    @needs(Capability.ADMINISTRATION)
    async def test_worker_that_has_left_is_not_listed(self, place: Workplace) -> None:
        """A worker that has closed its session is not listed."""
        hand, other = await place.worker("left"), await place.worker("other")
        await eventually(place.admin.workers, lambda views: {hand.worker_id, other.worker_id} <= ids_of(views))
        await place.gone(hand)
        assert await worker(place, other.worker_id) is not None

    @needs(Capability.ADMINISTRATION)
    async def test_worker_is_asked_to_drain(self, place: Workplace) -> None:
        """A worker that is asked to drain receives the request, and is listed as draining."""
        hand = await place.worker()
        await eventually(lambda: worker(place, hand.worker_id), bool)
        await place.admin.drain_worker(hand.worker_id)
        await hand.until(lambda: hand.is_drain_asked)
        await eventually(lambda: worker(place, hand.worker_id), lambda view: view and view.is_draining)

    @needs(Capability.ADMINISTRATION)
    async def test_worker_that_is_not_there_cannot_be_asked_to_drain(self, place: Workplace) -> None:
        """A drain request to an unknown worker is not found."""
        with pytest.raises(NotFoundError):
            await place.admin.drain_worker(place.name("nobody"))

    @needs(Capability.ADMINISTRATION)
    async def test_queue_with_a_bad_name_is_refused(self, place: Workplace) -> None:
        """A queue with an invalid name can neither be paused nor purged."""
        with pytest.raises(InvalidArgumentError):
            await place.admin.set_queue_mode("../etc", QueueMode.PAUSED, "")
        with pytest.raises(InvalidArgumentError):
            await place.admin.purge("", "")
