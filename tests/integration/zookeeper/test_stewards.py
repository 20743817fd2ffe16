"""Stewards: what nobody else would look after, on a real server."""

import msgspec
import pytest

from holdfast import limits
from holdfast.core.lifecycle import CANCELED, DONE, FAILED, QUEUED
from holdfast.core.model import Extra
from holdfast.errors import NotFoundError
from holdfast.ports import JobDraft
from holdfast.testing.conformance.workplace import accepted
from holdfast.topologies.zookeeper.backend.cleaner import Tidying
from holdfast.topologies.zookeeper.backend.job_api import NodeJobs
from holdfast.topologies.zookeeper.backend.node_changes import Changing
from holdfast.topologies.zookeeper.backend.records import NodeRetention
from holdfast.topologies.zookeeper.backend.retention import read_retention, write_retention
from holdfast.topologies.zookeeper.backend.steward import Steward
from holdfast.topologies.zookeeper.backend.transactions import Create, Delete
from tests.integration.pipeline.happening import happens
from tests.integration.zookeeper.faults import DRAFT, JOB, Bidding, FaultyConnection, deletes, makes, until
from tests.integration.zookeeper.test_races import expire, refused, submit

#: As if so much time had passed since everything ended.
LONG_AGO_MS = -10 * 60_000


async def steward(bidding: Bidding) -> tuple[FaultyConnection, Steward]:
    """One that is first, because nobody else is there yet."""
    connection = await bidding.client()
    made = Steward(connection)
    await made.start()
    bidding.stewards.append(made)
    await until(lambda: made.is_waiting)
    return connection, made


async def everything(connection: FaultyConnection, path: str) -> list[str]:
    """All nodes below a path that hold nothing below them."""
    names = await connection.children(path) or []
    return [path] if not names else [leaf for name in names for leaf in await everything(connection, f"{path}/{name}")]


#: Everything that has ended is over; the same, but for FAILED jobs.
OVER = NodeRetention(LONG_AGO_MS, LONG_AGO_MS)
OVER_UNLESS_FAILED = NodeRetention(LONG_AGO_MS)


def tidying_of(connection: FaultyConnection) -> Tidying:
    """Tidies up by that connection."""
    return Tidying(Changing(connection))


async def failed_job(bidding: Bidding, jobs: NodeJobs) -> str:
    """A job that has failed for good."""
    job_id = await submit(jobs)
    hand = await bidding.worker("failing")
    (lease,) = await hand.take()
    await hand.failed(lease, is_retryable=False)
    await hand.session.close()
    return job_id


async def as_before(client: FaultyConnection, job_id: str) -> None:
    """Puts the retention note of a FAILED job where earlier versions had those of all jobs."""
    job = await NodeJobs(client).get(job_id)
    note = client.paths.ended_job(job.finished_ms, job_id)
    minute = Create(note.rpartition("/")[0])
    await client.transact([Delete(client.paths.failed_job(job.finished_ms, job_id)), minute, Create(note)])


class TestRecovery:
    """What lost workers held."""

    async def test_job_that_costs_too_many_workers_fails_and_says_why(self, bidding: Bidding) -> None:
        """Each loss is counted by the steward; beyond the budget the job ends, and others flow."""
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
        """A job that ends its worker spends its losses by that, however soon the next process comes."""
        jobs = NodeJobs(await bidding.client())
        (poison,) = accepted(await jobs.submit([msgspec.structs.replace(JOB, max_losses=1)], [DRAFT]))
        for process in ("first", "second"):
            (lease,) = await (await bidding.worker("phoenix", process=process)).take()
            assert lease.job_id == poison
        await bidding.worker("phoenix", process="third")
        job, _ = await jobs.settled(poison)
        assert (job.state, job.failure_reason, job.losses) == (FAILED, "WORKER_LOST", 2)

    async def test_job_that_should_stop_ends_with_its_worker(self, bidding: Bidding) -> None:
        """A cancel that was asked for is not lost with the worker that was asked."""
        await steward(bidding)
        jobs = NodeJobs(await bidding.client())
        job_id = await submit(jobs)
        hand = await bidding.worker("w")
        await hand.take()
        await jobs.cancel(job_id, "stop")
        await expire(bidding.connection_of("w"))
        assert (await jobs.settled(job_id))[0].state == CANCELED

    async def test_new_steward_finds_what_the_last_one_left(self, bidding: Bidding) -> None:
        """The worker was lost, and the steward right in the middle of it; the next one looks at everything."""
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
        """Of a recovery and a worker that names its lease one wins, and the other does nothing."""
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

    async def test_steward_that_is_late_leaves_alone_what_a_worker_took_that_came_back(self, bidding: Bidding) -> None:
        """It has seen that a job waits that was held; when it strikes that out, the same worker holds the job again."""
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
        """It tidies up after a lost worker; a cancel that comes when the worker is back is not taken for an old one."""
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
        """Neither of one that left nor of one that was lost."""
        connection, _ = await steward(bidding)
        left, _ = [await bidding.worker(name) for name in ("left", "lost")]
        await expire(bidding.connection_of("lost"))
        await left.session.close()
        paths = connection.paths
        for top in (paths.held, paths.asked, paths.workers):
            await happens(lambda: connection.children(top), lambda names: names == [])  # noqa: B023 - over at once


class TestRipening:
    """Jobs and their time."""

    async def test_job_is_posted_when_its_time_comes_though_its_steward_is_gone(self, bidding: Bidding) -> None:
        """Whoever is next in the line of stewards does it."""
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
        """The steward was about to post it; the cancel came first."""
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
    """What nobody needs any more."""

    async def test_job_goes_with_all_its_nodes_after_its_retention(self, bidding: Bidding) -> None:
        """Record, payload, result, keys and index: what has ended leaves nothing, what has not stays whole."""
        client = await bidding.client()
        jobs = NodeJobs(client)
        extra = Extra(request_id="request", unique_key="unique")
        ended = await submit(jobs, JobDraft(payload=b"in", extra=extra))
        hand = await bidding.worker("w")
        (lease,) = await hand.take()
        await hand.done(lease, b"out")
        stays = await submit(jobs, JobDraft(payload=b"in", extra=Extra(request_id="other")))
        tidying = tidying_of(client)
        await tidying.look(OVER)
        leaves = await everything(client, client.paths.root)
        assert [leaf for leaf in leaves if ended in leaf] == []
        assert (await jobs.get(stays)).state == QUEUED
        again = await jobs.submit([JOB], [JobDraft(payload=b"else", extra=extra)])
        assert again.existing == frozenset()

    async def test_failed_job_is_kept_for_its_own_retention(self, bidding: Bidding) -> None:
        """A FAILED job outlives the DONE and CANCELED ones of its time, and goes with all its nodes after its own."""
        client = await bidding.client()
        jobs = NodeJobs(client)
        failed, canceled = await failed_job(bidding, jobs), await submit(jobs)
        await jobs.cancel(canceled, "")
        await tidying_of(client).look(OVER_UNLESS_FAILED)
        assert (await jobs.get(failed)).state == FAILED
        with pytest.raises(NotFoundError):
            await jobs.get(canceled)
        assert failed in {job.id for job in (await jobs.page([FAILED], 0, 10, newest_first=True)).jobs}
        await tidying_of(client).look(OVER)
        assert [leaf for leaf in await everything(client, client.paths.root) if failed in leaf] == []

    async def test_failed_jobs_are_kept_longer_by_default(self, bidding: Bidding) -> None:
        """Where no gateway has written anything, FAILED jobs are kept for a week and all others for a day."""
        assert await read_retention(await bidding.client()) == NodeRetention(86_400_000, 7 * 86_400_000)

    async def test_steward_heeds_what_a_gateway_wrote(self, bidding: Bidding) -> None:
        """A steward that was told nothing removes jobs by the times in the ensemble; the last gateway decides."""
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
        """Its note is among those of all ended jobs, so it goes with them."""
        client = await bidding.client()
        jobs = NodeJobs(client)
        job_id = await failed_job(bidding, jobs)
        await as_before(client, job_id)
        await tidying_of(client).look(OVER_UNLESS_FAILED)
        assert [leaf for leaf in await everything(client, client.paths.root) if job_id in leaf] == []

    @pytest.mark.parametrize("is_old", [False, True])
    async def test_client_forgets_a_failed_job_of_any_version(self, bidding: Bidding, *, is_old: bool) -> None:
        """Wherever its retention note is, nothing of the job is left."""
        client = await bidding.client()
        jobs = NodeJobs(client)
        job_id = await failed_job(bidding, jobs)
        if is_old:
            await as_before(client, job_id)
        await jobs.forget(job_id)
        assert [leaf for leaf in await everything(client, client.paths.root) if job_id in leaf] == []

    async def test_root_of_an_earlier_version_is_completed(self, bidding: Bidding) -> None:
        """A root without the notes of FAILED jobs gets them from the next process that connects."""
        client = await bidding.client()
        await client.transact([Delete(client.paths.failed)])
        job_id = await failed_job(bidding, NodeJobs(client))
        assert [leaf for leaf in await everything(client, client.paths.failed) if job_id in leaf] != []

    async def test_empty_lane_goes_and_comes_back(self, bidding: Bidding) -> None:
        """A lane that was empty twice is taken away; who posts into it makes it again, and who waits hears so."""
        client = await bidding.client()
        jobs = NodeJobs(client)
        await jobs.cancel(await submit(jobs), "only to make the lane")
        hand = await bidding.idle("w")
        tidying = tidying_of(client)
        await tidying.look(OVER)
        await tidying.look(OVER)
        await client.sync()
        assert await client.children(client.paths.waiting) == []
        job_id = await submit(jobs)
        assert [lease.job_id for lease in await hand.leases()] == [job_id]

    async def test_bucket_that_was_closed_is_not_taken_for_the_open_one_of_its_name(
        self, bidding: Bidding, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A worker is about to take an empty bucket away; its lane goes and comes back, and new jobs go into it."""
        monkeypatch.setattr(limits, "ZOOKEEPER_BUCKET_JOBS", 1)
        client = await bidding.client()
        jobs = NodeJobs(client)
        for _ in range(2):
            await jobs.cancel(await submit(jobs), "only to close the bucket")
        hand = await bidding.worker("w")
        gate = bidding.connection_of("w").hold(deletes("/waiting/"))
        await hand.session.want(1)
        await gate.reached.wait()
        tidying = tidying_of(client)
        await tidying.look(OVER)
        await tidying.look(OVER)
        await submit(jobs)
        (lease,) = await hand.leases()
        await hand.done(lease)
        await refused(gate)
        job_id = await submit(jobs)
        assert [lease.job_id for lease in await hand.take()] == [job_id]

    async def test_posting_without_a_job_is_taken_away_by_whoever_finds_it(self, bidding: Bidding) -> None:
        """Nothing of ours leaves one, and a worker must not stumble over it for ever."""
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
