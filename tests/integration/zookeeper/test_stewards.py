"""Stewards on a real server: recovery of lost workers, due jobs and removal of old nodes."""

import msgspec
import pytest

from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED
from holdfast.core.model import Extra
from holdfast.errors import NotFoundError
from holdfast.ports import JobDraft
from holdfast.testing.conformance.workplace import accepted
from holdfast.topologies.zookeeper import ensemble_limits
from holdfast.topologies.zookeeper.backend.cleaner import NodeCleaner
from holdfast.topologies.zookeeper.backend.job_api import NodeJobs
from holdfast.topologies.zookeeper.backend.node_changes import NodeChanges
from holdfast.topologies.zookeeper.backend.records import NodeRetention
from holdfast.topologies.zookeeper.backend.retention import read_retention, write_retention
from holdfast.topologies.zookeeper.backend.steward import Steward
from holdfast.topologies.zookeeper.backend.transactions import Create, Delete
from tests.integration.pipeline.wait_until import happens
from tests.integration.zookeeper.faults import DRAFT, JOB, Bidding, FaultyConnection, deletes, makes, until
from tests.integration.zookeeper.test_races import expire, refused, submit

#: A negative retention, as if all jobs had ended long ago.
LONG_AGO_MS = -10 * 60_000


async def steward(bidding: Bidding) -> tuple[FaultyConnection, Steward]:
    """Starts a steward that is first, because there is no other yet."""
    connection = await bidding.client()
    made = Steward(connection)
    await made.start()
    bidding.stewards.append(made)
    await until(lambda: made.is_waiting)
    return connection, made


async def everything(connection: FaultyConnection, path: str) -> list[str]:
    """All nodes without children below a path."""
    names = await connection.children(path) or []
    return [path] if not names else [leaf for name in names for leaf in await everything(connection, f"{path}/{name}")]


#: Every finished job is past its retention; the same, except for FAILED jobs.
OVER = NodeRetention(LONG_AGO_MS, LONG_AGO_MS)
OVER_UNLESS_FAILED = NodeRetention(LONG_AGO_MS)


def cleaner_of(connection: FaultyConnection) -> NodeCleaner:
    """A cleanup over this connection."""
    return NodeCleaner(NodeChanges(connection))


async def failed_job(bidding: Bidding, jobs: NodeJobs) -> str:
    """Creates a job that has failed finally."""
    job_id = await submit(jobs)
    hand = await bidding.worker("failing")
    (lease,) = await hand.take()
    await hand.failed(lease, is_retryable=False)
    await hand.session.close()
    return job_id


async def as_before(client: FaultyConnection, job_id: str) -> None:
    """Moves the retention note of a FAILED job to the place that earlier versions used for all jobs."""
    job = await NodeJobs(client).get(job_id)
    note = client.paths.ended_job(job.finished_ms, job_id)
    minute = Create(note.rpartition("/")[0])
    await client.transact([Delete(client.paths.failed_job(job.finished_ms, job_id)), minute, Create(note)])


class TestRecovery:
    """Recovery of the jobs of lost workers."""

    async def test_job_that_costs_too_many_workers_fails_and_says_why(self, bidding: Bidding) -> None:
        """The steward counts each loss, and a job above its permitted losses is FAILED."""
        jobs = NodeJobs(await bidding.client())
        template = msgspec.structs.replace(JOB, max_losses=1)
        (poison,) = accepted(await jobs.submit([template], [DRAFT]))
        for name in ("first", "second"):
            hand = await bidding.worker(name)
            (lease,) = await hand.take()
            assert lease.job_id == poison
            await expire(bidding.connection_of(name))
            await hand.until(lambda: bool(hand.revoked))  # noqa: B023 - it is over before the next one comes
            await bidding.worker(f"{name}-steward")
        job, result = await jobs.settled(poison)
        assert (job.state, job.failure_reason, job.losses, job.attempts) == (FAILED, "WORKER_LOST", 2, 2)
        assert result.summary

    async def test_worker_that_is_started_again_under_its_name_has_lost_its_job(self, bidding: Bidding) -> None:
        """A job that kills its worker counts a loss, also if the next process starts with the same name at once."""
        jobs = NodeJobs(await bidding.client())
        (poison,) = accepted(await jobs.submit([msgspec.structs.replace(JOB, max_losses=1)], [DRAFT]))
        for process in ("first", "second"):
            (lease,) = await (await bidding.worker("phoenix", process=process)).take()
            assert lease.job_id == poison
        await bidding.worker("phoenix", process="third")
        job, _ = await jobs.settled(poison)
        assert (job.state, job.failure_reason, job.losses) == (FAILED, "WORKER_LOST", 2)

    async def test_job_that_should_stop_ends_with_its_worker(self, bidding: Bidding) -> None:
        """A job with a requested cancel ends when its worker is lost."""
        await steward(bidding)
        jobs = NodeJobs(await bidding.client())
        job_id = await submit(jobs)
        hand = await bidding.worker("w")
        await hand.take()
        await jobs.cancel(job_id, "stop")
        await expire(bidding.connection_of("w"))
        assert (await jobs.settled(job_id))[0].state == CANCELED

    async def test_new_steward_completes_the_recovery_of_a_lost_one(self, bidding: Bidding) -> None:
        """A new steward completes the recovery that the lost one had begun."""
        connection, _ = await steward(bidding)
        jobs = NodeJobs(await bidding.client())
        job_id = await submit(jobs)
        hand = await bidding.worker("w")
        await hand.take()
        gate = connection.hold(makes("/waiting/"))
        await expire(bidding.connection_of("w"))
        await gate.reached.wait()
        await expire(connection)
        other = await bidding.worker("other")
        (lease,) = await other.take()
        gate.opened.set()
        await other.done(lease)
        job = await jobs.get(job_id)
        assert (job.state, job.losses, job.attempts) == (DONE, 1, 2)

    async def test_worker_that_comes_back_before_the_steward_acts_keeps_its_job(self, bidding: Bidding) -> None:
        """A worker that returns and names its lease before the steward's recovery keeps its job."""
        connection, _ = await steward(bidding)
        jobs = NodeJobs(await bidding.client())
        job_id = await submit(jobs)
        hand = await bidding.worker("w")
        (lease,) = await hand.take()
        gate = connection.hold(makes("/waiting/"))
        await expire(bidding.connection_of("w"))
        await gate.reached.wait()
        again = await bidding.worker("w", held={lease.token: job_id})
        assert again.revoked == []
        gate.opened.set()
        await again.done(lease, b"kept")
        job = await jobs.get(job_id)
        assert (job.state, job.losses, job.attempts, job.token) == (DONE, 0, 1, lease.token)

    async def test_late_steward_keeps_a_job_that_the_returned_worker_has_taken(self, bidding: Bidding) -> None:
        """A late steward does not delete the holder entry of a job that the returned worker has taken again."""
        connection, _ = await steward(bidding)
        jobs = NodeJobs(await bidding.client())
        job_id = await submit(jobs)
        await (await bidding.worker("w")).take()
        known, listed = connection.hold_read("/held/w:w"), connection.hold_read("/held/w:w")
        known.opened.set()
        await expire(bidding.connection_of("w"))
        await listed.reached.wait()
        again = await bidding.worker("w")
        gate = connection.hold(deletes(f"/held/w:w/{job_id}"))
        listed.opened.set()
        await gate.reached.wait()
        (lease,) = await again.take()
        await refused(gate)
        await again.done(lease)
        job = await jobs.get(job_id)
        assert (job.state, job.token) == (DONE, lease.token)

    async def test_steward_that_is_late_leaves_words_to_a_worker_that_came_back(self, bidding: Bidding) -> None:
        """A steward that cleans up after a lost worker does not delete a cancel request that came after its return."""
        connection, _ = await steward(bidding)
        jobs = NodeJobs(await bidding.client())
        job_id = await submit(jobs)
        (lease,) = await (await bidding.worker("w")).take()
        recovery = connection.hold(makes("/waiting/"))
        await expire(bidding.connection_of("w"))
        await recovery.reached.wait()
        again = await bidding.worker("w", held={lease.token: job_id})
        heard = bidding.connection_of("w").hold(deletes("/asked/"))
        await jobs.cancel(job_id, "stop")
        await heard.reached.wait()
        tidying = connection.hold(deletes("/asked/"))
        recovery.opened.set()
        await tidying.reached.wait()
        await refused(tidying)
        heard.opened.set()
        await again.until(lambda: lease.token in again.cancels)

    async def test_nothing_is_left_of_workers_that_are_gone(self, bidding: Bidding) -> None:
        """The nodes of workers that left or were lost are removed."""
        connection, _ = await steward(bidding)
        left, _ = [await bidding.worker(name) for name in ("left", "lost")]
        await expire(bidding.connection_of("lost"))
        await left.session.close()
        paths = connection.paths
        for top in (paths.held, paths.asked, paths.workers):
            await happens(lambda: connection.children(top), lambda names: names == [])  # noqa: B023 - over at once


class TestRipening:
    """Delayed jobs."""

    async def test_job_is_posted_when_its_time_comes_though_its_steward_is_gone(self, bidding: Bidding) -> None:
        """If the first steward is gone, the next one posts a job when it is due."""
        connection, _ = await steward(bidding)
        jobs = NodeJobs(await bidding.client())
        hand = await bidding.worker("w")
        await hand.session.want(1)
        (job_id,) = accepted(await jobs.submit([JOB], [JobDraft(delay_ms=400)]))
        await connection.close()
        (lease,) = await hand.leases()
        job = await jobs.get(job_id)
        assert lease.job_id == job_id
        assert job.started_ms >= job.not_before_ms

    async def test_job_that_is_canceled_before_its_time_never_runs(self, bidding: Bidding) -> None:
        """A delayed job that is canceled just before the steward posts it never runs."""
        connection, _ = await steward(bidding)
        jobs = NodeJobs(await bidding.client())
        gate = connection.hold(makes("/waiting/default:job:04/b-0000000000/"))
        (job_id,) = accepted(await jobs.submit([JOB], [JobDraft(delay_ms=50)]))
        await gate.reached.wait()
        await jobs.cancel(job_id, "no")
        gate.opened.set()
        hand = await bidding.worker("w")
        later = await submit(jobs)
        assert [lease.job_id for lease in await hand.take()] == [later]
        assert await hand.rest() == []
        assert (await jobs.get(job_id)).attempts == 0


class TestTidying:
    """Removal of old nodes."""

    async def test_job_goes_with_all_its_nodes_after_its_retention(self, bidding: Bidding) -> None:
        """After its retention a finished job is deleted with all its nodes, and an unfinished job stays whole."""
        client = await bidding.client()
        jobs = NodeJobs(client)
        extra = Extra(request_id="request", unique_key="unique")
        ended = await submit(jobs, JobDraft(payload=b"in", extra=extra))
        hand = await bidding.worker("w")
        (lease,) = await hand.take()
        await hand.done(lease, b"out")
        stays = await submit(jobs, JobDraft(payload=b"in", extra=Extra(request_id="other")))
        tidying = cleaner_of(client)
        await tidying.look(OVER)
        leaves = await everything(client, client.paths.root)
        assert [leaf for leaf in leaves if ended in leaf] == []
        assert (await jobs.get(stays)).state == QUEUED
        again = await jobs.submit([JOB], [JobDraft(payload=b"else", extra=extra)])
        assert again.existing == frozenset()

    async def test_failed_job_is_kept_for_its_own_retention(self, bidding: Bidding) -> None:
        """A FAILED job outlives DONE and CANCELED jobs of the same time, and is deleted after its own retention."""
        client = await bidding.client()
        jobs = NodeJobs(client)
        failed, canceled = await failed_job(bidding, jobs), await submit(jobs)
        await jobs.cancel(canceled, "")
        await cleaner_of(client).look(OVER_UNLESS_FAILED)
        assert (await jobs.get(failed)).state == FAILED
        with pytest.raises(NotFoundError):
            await jobs.get(canceled)
        assert failed in {job.id for job in (await jobs.page([FAILED], 0, 10, newest_first=True)).jobs}
        await cleaner_of(client).look(OVER)
        assert [leaf for leaf in await everything(client, client.paths.root) if failed in leaf] == []

    async def test_failed_jobs_are_kept_longer_by_default(self, bidding: Bidding) -> None:
        """Without settings of a gateway, FAILED jobs are kept for a week and all others for a day."""
        assert await read_retention(await bidding.client()) == NodeRetention(86_400_000, 7 * 86_400_000)

    async def test_steward_uses_the_retention_that_a_gateway_stored(self, bidding: Bidding) -> None:
        """A steward uses the retention that the last gateway stored in the ensemble."""
        client = await bidding.client()
        jobs = NodeJobs(client)
        failed, canceled = await failed_job(bidding, jobs), await submit(jobs)
        await jobs.cancel(canceled, "")
        await write_retention(client, OVER)
        await write_retention(client, OVER_UNLESS_FAILED)
        await steward(bidding)
        assert (await jobs.get(failed)).state == FAILED
        with pytest.raises(NotFoundError):
            await jobs.get(canceled)

    async def test_failed_job_of_an_earlier_version_is_retired(self, bidding: Bidding) -> None:
        """A FAILED job of an earlier version is deleted together with the other finished jobs."""
        client = await bidding.client()
        jobs = NodeJobs(client)
        job_id = await failed_job(bidding, jobs)
        await as_before(client, job_id)
        await cleaner_of(client).look(OVER_UNLESS_FAILED)
        assert [leaf for leaf in await everything(client, client.paths.root) if job_id in leaf] == []

    @pytest.mark.parametrize("is_old", [False, True])
    async def test_client_forgets_a_failed_job_of_any_version(self, bidding: Bidding, *, is_old: bool) -> None:
        """A client deletes a FAILED job of any version with all its nodes."""
        client = await bidding.client()
        jobs = NodeJobs(client)
        job_id = await failed_job(bidding, jobs)
        if is_old:
            await as_before(client, job_id)
        await jobs.forget(job_id)
        assert [leaf for leaf in await everything(client, client.paths.root) if job_id in leaf] == []

    async def test_root_of_an_earlier_version_is_completed(self, bidding: Bidding) -> None:
        """A root of an earlier version gets the node for FAILED jobs from the next process that connects."""
        client = await bidding.client()
        await client.transact([Delete(client.paths.failed)])
        job_id = await failed_job(bidding, NodeJobs(client))
        assert [leaf for leaf in await everything(client, client.paths.failed) if job_id in leaf] != []

    async def test_empty_lane_goes_and_comes_back(self, bidding: Bidding) -> None:
        """A lane that was empty twice is removed, and a job that creates it again wakes the waiting worker."""
        client = await bidding.client()
        jobs = NodeJobs(client)
        await jobs.cancel(await submit(jobs), "only to make the lane")
        hand = await bidding.idle("w")
        tidying = cleaner_of(client)
        await tidying.look(OVER)
        await tidying.look(OVER)
        await client.sync()
        assert await client.children(client.paths.waiting) == []
        job_id = await submit(jobs)
        assert [lease.job_id for lease in await hand.leases()] == [job_id]

    async def test_bucket_that_was_closed_is_not_taken_for_the_open_one_of_its_name(
        self, bidding: Bidding, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A late removal of an empty bucket does not delete a new bucket of the same name."""
        monkeypatch.setattr(ensemble_limits, "BUCKET_JOBS", 1)
        client = await bidding.client()
        jobs = NodeJobs(client)
        for _ in range(2):
            await jobs.cancel(await submit(jobs), "only to close the bucket")
        hand = await bidding.worker("w")
        gate = bidding.connection_of("w").hold(deletes("/waiting/"))
        await hand.session.want(1)
        await gate.reached.wait()
        tidying = cleaner_of(client)
        await tidying.look(OVER)
        await tidying.look(OVER)
        await submit(jobs)
        (lease,) = await hand.leases()
        await hand.done(lease)
        await refused(gate)
        job_id = await submit(jobs)
        assert [lease.job_id for lease in await hand.take()] == [job_id]

    async def test_worker_removes_a_posting_without_a_job(self, bidding: Bidding) -> None:
        """A worker that finds a posting without a job removes it and takes the next job."""
        client = await bidding.client()
        jobs = NodeJobs(client)
        job_id = await submit(jobs)
        lane = f"{client.paths.waiting}/default:job:04"
        stray = f"{lane}/b-0000000000/00000000-0000-4000-8000-000000000000-"
        await client.transact([Create(stray, sequential=True)])
        hand = await bidding.worker("w")
        assert [lease.job_id for lease in await hand.take()] == [job_id]
        later = await submit(jobs)
        assert [lease.job_id for lease in await hand.take()] == [later]
        await happens(lambda: client.children(f"{lane}/b-0000000000"), lambda names: names == [])
