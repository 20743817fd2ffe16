"""Every race of bidding, forced: the test decides the losses and the order of requests."""

import asyncio
import contextlib
import threading

import pytest
from kazoo.client import KazooClient

from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import CANCELED, DONE, QUEUED, RUNNING
from holdfast.core.model import FIXED, BackoffRule, Extra, Template
from holdfast.errors import NotFoundError, UnavailableError
from holdfast.ports import Introduction, JobDraft
from holdfast.testing.conformance import workplace
from holdfast.topologies.zookeeper import ensemble_limits
from holdfast.topologies.zookeeper.backend import worker_session as sessions
from holdfast.topologies.zookeeper.backend.connection import SessionPhase
from holdfast.topologies.zookeeper.backend.job_api import NodeJobs
from holdfast.topologies.zookeeper.backend.kazoo_bridge import WatchEvent
from holdfast.topologies.zookeeper.backend.transactions import Create, RefusedError
from holdfast.topologies.zookeeper.backend.work_api import BidWork
from tests.integration.zookeeper.faults import (
    DRAFT,
    ENDS,
    JOB,
    LONG_MS,
    STANDS_IN_LINE,
    SUBMITS,
    TAKES,
    Bidding,
    FaultyConnection,
    Gate,
    deletes,
    makes,
)

RETRIED = Template("job", max_attempts=2, backoff=BackoffRule(FIXED, 1))

LOSSES = ["lose_answer", "lose_request"]


async def submit(jobs: NodeJobs, draft: JobDraft = DRAFT) -> str:
    """Submits a job and returns its id."""
    submitted = await jobs.submit([JOB], [draft])
    assert submitted.refusals == {}
    return submitted.job_ids[0]


class TestResults:
    """A wait for a result ends whenever the result comes."""

    async def test_result_that_comes_while_the_watch_is_set_is_not_missed(self, bidding: Bidding) -> None:
        """A wait notices a job that ends between its read of the record and the read's response."""
        client, other = await bidding.client(), NodeJobs(await bidding.client())
        job_id = await submit(other)
        hand = await bidding.worker("w")
        (lease,) = await hand.take()
        gate, reads = client.hold_read(job_id), client.traffic["get"]
        waiting = asyncio.create_task(NodeJobs(client).settled(job_id))
        await gate.reached.wait()
        await hand.done(lease, b"out")
        gate.opened.set()
        job, result = await waiting
        assert (job.state, result.output) == (DONE, b"out")
        assert client.traffic["get"] - reads == 3  # the record twice and the result, so no polling

    async def test_result_outlives_the_client_that_wanted_it(self, bidding: Bidding) -> None:
        """A job whose client has gone still gets a result, which another client can read."""
        client = await bidding.client()
        job_id = await submit(NodeJobs(client))
        hand = await bidding.worker("w")
        (lease,) = await hand.take()
        waiting = asyncio.create_task(NodeJobs(client).settled(job_id))
        await client.close()
        waiting.cancel()
        await hand.done(lease, b"out")
        later = NodeJobs(await bidding.client())
        assert (await later.result(job_id)).output == b"out"


class TestLooking:
    """No job is missed between a read and a watch."""

    async def test_job_that_comes_while_the_watch_is_set_is_seen(self, bidding: Bidding) -> None:
        """The first worker in line notices a job that is posted while its read of an empty lane is under way."""
        jobs = NodeJobs(await bidding.client())
        await jobs.cancel(await submit(jobs), "only to make the lane")
        hand = await bidding.idle("w")
        connection = bidding.connection_of("w")
        woken = connection.hold_read("/lines/")
        gone = await submit(jobs)
        await woken.reached.wait()
        await jobs.cancel(gone, "before the worker reads the lane")
        gate = connection.hold_read("/waiting/default:job:04/b-")
        woken.opened.set()
        await gate.reached.wait()
        job_id = await submit(jobs)
        gate.opened.set()
        assert [lease.job_id for lease in await hand.leases()] == [job_id]

    async def test_job_that_comes_before_the_line_is_joined_is_seen(self, bidding: Bidding) -> None:
        """A worker notices a job that is posted between its read of an empty lane and its entry into the line."""
        jobs = NodeJobs(await bidding.client())
        hand = await bidding.worker("w")
        gate = bidding.connection_of("w").hold(STANDS_IN_LINE)
        await hand.session.want(1)
        await gate.reached.wait()
        job_id = await submit(jobs)
        gate.opened.set()
        assert [lease.job_id for lease in await hand.leases()] == [job_id]

    async def test_job_that_could_not_be_read_is_looked_for_again(
        self, bidding: Bidding, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first worker in line repeats a lost read of a job, although no watch fires again."""
        monkeypatch.setattr(workplace, "PATIENCE_S", 20.0)
        jobs = NodeJobs(await bidding.client())
        hand = await bidding.idle("w")
        bidding.connection_of("w").lose_read("/jobs/")
        job_id = await submit(jobs)
        assert [lease.job_id for lease in await hand.leases()] == [job_id]

    async def test_job_that_opens_the_next_bucket_wakes_the_first_in_line(
        self, bidding: Bidding, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A job in a new bucket wakes an idle worker that watches the full and empty bucket before it."""
        monkeypatch.setattr(ensemble_limits, "BUCKET_JOBS", 2)
        jobs = NodeJobs(await bidding.client())
        for _ in range(2):
            await jobs.cancel(await submit(jobs), "only to fill the bucket")
        hand = await bidding.idle("w")
        job_id = await submit(jobs)
        assert [lease.job_id for lease in await hand.leases()] == [job_id]

    async def test_bid_that_is_lost_in_a_closed_bucket_is_followed_by_one_in_the_next(
        self, bidding: Bidding, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A worker that loses its bid for the last job of a bucket bids in the next bucket."""
        monkeypatch.setattr(ensemble_limits, "BUCKET_JOBS", 1)
        jobs = NodeJobs(await bidding.client())
        hand, other = await bidding.worker("w"), await bidding.worker("other")
        connection = bidding.connection_of("w")
        joining = connection.hold(STANDS_IN_LINE)
        await hand.session.want(1)
        await joining.reached.wait()
        ids = (await jobs.submit([JOB], [DRAFT, DRAFT])).job_ids
        bid = connection.hold(TAKES)
        joining.opened.set()
        await bid.reached.wait()
        assert [lease.job_id for lease in await other.take()] == ids[:1]
        bid.opened.set()
        assert [lease.job_id for lease in await hand.leases()] == ids[1:]

    async def test_second_worker_in_line_takes_the_job_the_first_one_leaves(self, bidding: Bidding) -> None:
        """When the first worker in line has taken one of two jobs, the second worker takes the other."""
        jobs = NodeJobs(await bidding.client())
        first, second = await bidding.worker("first"), await bidding.worker("second")
        await first.session.want(1)
        await second.session.want(1)
        ids = (await jobs.submit([JOB], [DRAFT, DRAFT])).job_ids
        leases = [*await first.leases(), *await second.leases()]
        assert sorted(lease.job_id for lease in leases) == sorted(ids)

    async def test_watches_ring_on_the_loop_and_never_begin_a_second_one(
        self, bidding: Bidding, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However many watches fire while a worker bids, it runs one look at a time, on the loop's thread."""
        jobs = NodeJobs(await bidding.client())
        hand = await bidding.idle("w", room=40)
        looks, most, threads, rung = 0, 0, set[int](), list[int]()
        bidder = hand.session._bidder  # type: ignore[attr-defined]
        take = bidder.take

        async def counted(count: int, watch_event: WatchEvent | None = None) -> object:
            nonlocal looks, most
            looks += 1
            most = max(most, looks)
            threads.add(threading.get_ident())
            try:
                return await take(count, watch_event)
            finally:
                looks -= 1

        def ring(watch_event: WatchEvent, _event: object) -> None:
            rung.append(threading.get_ident())
            watch_event.set()

        bidder.take = counted
        monkeypatch.setattr(WatchEvent, "fired", ring)
        for _ in range(8):
            await asyncio.gather(*(submit(jobs) for _ in range(5)))
        leases = await hand.leases(40)
        assert len({lease.job_id for lease in leases}) == 40
        assert (most, threads, set(rung)) == (1, {threading.get_ident()}, {threading.get_ident()})


class TestBids:
    """A bid wins once, and only if the job still waits."""

    async def test_bid_counts_although_a_later_read_is_lost(self, bidding: Bidding) -> None:
        """A worker keeps the first of two bids when the read for the second is lost."""
        jobs = NodeJobs(await bidding.client())
        ids = (await jobs.submit([JOB], [DRAFT, DRAFT])).job_ids
        hand = await bidding.worker("w")
        bidding.connection_of("w").lose_read(ids[1])
        assert [lease.job_id for lease in await hand.take(2)] == ids

    async def test_bids_that_were_not_answered_are_all_found_again(self, bidding: Bidding) -> None:
        """A worker finds all its bids without a response again, also if a read during the check is lost."""
        jobs = NodeJobs(await bidding.client())
        ids = (await jobs.submit([JOB], [DRAFT, DRAFT])).job_ids
        hand = await bidding.worker("w")
        connection = bidding.connection_of("w")
        connection.lose_answer(TAKES)
        connection.lose_answer(TAKES)
        connection.lose_read(f"{ids[1]}/bid")
        assert [lease.job_id for lease in await hand.take(2)] == ids

    async def test_bid_on_a_job_that_was_deleted_does_not_bring_it_back(self, bidding: Bidding) -> None:
        """A bid for a job that was canceled and deleted does not create it again."""
        client = await bidding.client()
        jobs = NodeJobs(client)
        job_id = await submit(jobs)
        hand = await bidding.worker("w")
        gate = bidding.connection_of("w").hold(TAKES)
        await hand.session.want(1)
        await gate.reached.wait()
        await jobs.cancel(job_id, "gone")
        await jobs.forget(job_id)
        gate.opened.set()
        assert await hand.rest() == []
        with pytest.raises(NotFoundError):
            await jobs.get(job_id)
        assert await client.exists(client.paths.record(job_id)) is None

    async def test_of_two_bids_at_once_one_wins(self, bidding: Bidding) -> None:
        """Of two concurrent bids for one job, one wins."""
        jobs = NodeJobs(await bidding.client())
        job_id = await submit(jobs)
        hands = [await bidding.worker(name) for name in ("one", "two")]
        gates = [bidding.connection_of(name).hold(TAKES) for name in ("one", "two")]
        for hand, gate in zip(hands, gates, strict=True):
            await hand.session.want(1)
            await gate.reached.wait()
        for gate in gates:
            gate.opened.set()
        won = [lease for hand in hands for lease in await hand.rest()]
        assert [lease.job_id for lease in won] == [job_id]
        assert (await jobs.get(job_id)).attempts == 1

    async def test_cancel_that_comes_before_the_bid_wins(self, bidding: Bidding) -> None:
        """A bid that is sent after the cancel of a waiting job is refused."""
        jobs = NodeJobs(await bidding.client())
        job_id = await submit(jobs)
        hand = await bidding.worker("w")
        gate = bidding.connection_of("w").hold(TAKES)
        await hand.session.want(1)
        await gate.reached.wait()
        assert (await jobs.cancel(job_id, "no")).state == CANCELED
        gate.opened.set()
        assert await hand.rest() == []
        assert (await jobs.get(job_id)).attempts == 0

    async def test_bid_that_comes_before_the_cancel_wins(self, bidding: Bidding) -> None:
        """A cancel that is sent after a bid becomes a cancel request to the worker."""
        client = await bidding.client()
        jobs = NodeJobs(client)
        job_id = await submit(jobs)
        gate = client.hold(ENDS)
        canceling = asyncio.create_task(jobs.cancel(job_id, "stop"))
        await gate.reached.wait()
        hand = await bidding.worker("w")
        (lease,) = await hand.take()
        gate.opened.set()
        assert (await canceling).state == RUNNING
        await hand.until(lambda: lease.token in hand.cancels)
        await hand.canceled(lease)
        assert (await jobs.get(job_id)).state == CANCELED

    async def test_cancel_that_is_heard_before_the_bid_is_answered_is_not_lost(self, bidding: Bidding) -> None:
        """A cancel request that arrives before the worker knows that its bid won is not lost."""
        jobs = NodeJobs(await bidding.client())
        job_id = await submit(jobs)
        hand = await bidding.worker("w")
        connection = bidding.connection_of("w")
        connection.lose_answer(TAKES)
        gate = connection.hold(lambda steps: any("/asked/" in step.path for step in steps))
        await hand.session.want(1)
        watching = jobs.watch(job_id)
        while (await anext(watching)).state != RUNNING:
            pass
        await jobs.cancel(job_id, "stop")
        (lease,) = await hand.leases()
        await hand.until(lambda: lease.token in hand.cancels)
        gate.opened.set()


class TestLostAnswers:
    """After a lost response the client reads the state, and repeats the call only if it had no effect."""

    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize(
        "extra", [None, Extra(request_id="r"), Extra(unique_key="u")], ids=["plain", "key", "unique"]
    )
    async def test_submit_that_was_not_answered_makes_one_job(
        self, bidding: Bidding, loss: str, extra: Extra | None
    ) -> None:
        """If the request or the response of a submit is lost, it creates one new job, which runs once."""
        client = await bidding.client()
        jobs = NodeJobs(client)
        getattr(client, loss)(SUBMITS)
        submitted = await jobs.submit([JOB], [JobDraft(payload=b"in", extra=extra)])
        assert submitted.existing == frozenset()
        hand = await bidding.worker("w")
        (lease,) = await hand.take()
        assert [lease.job_id] == submitted.job_ids
        await hand.session.want(1)
        assert await hand.rest() == []

    @pytest.mark.parametrize("loss", LOSSES)
    async def test_bid_that_was_not_answered_is_found_again(self, bidding: Bidding, loss: str) -> None:
        """If the request or the response of a bid is lost, the worker gets the job once, with the bid's token."""
        jobs = NodeJobs(await bidding.client())
        job_id = await submit(jobs)
        hand = await bidding.worker("w")
        getattr(bidding.connection_of("w"), loss)(TAKES)
        (lease,) = await hand.take()
        job = await jobs.get(job_id)
        assert (lease.payload, job.token, job.attempts) == (b"in", lease.token, 1)
        await hand.done(lease, b"out")
        assert (await jobs.get(job_id)).state == DONE
        assert await hand.rest() == []

    @pytest.mark.parametrize("loss", LOSSES)
    async def test_end_that_was_not_answered_counts_once(self, bidding: Bidding, loss: str) -> None:
        """If the request or the response of a report is lost, it is acknowledged, and there is one result."""
        jobs = NodeJobs(await bidding.client())
        job_id = await submit(jobs)
        hand = await bidding.worker("w")
        (lease,) = await hand.take()
        getattr(bidding.connection_of("w"), loss)(ENDS)
        await hand.done(lease, b"out")
        job = await jobs.get(job_id)
        assert (job.state, job.attempts, (await jobs.result(job_id)).output) == (DONE, 1, b"out")

    @pytest.mark.parametrize("loss", LOSSES)
    async def test_cancel_that_was_not_answered_counts_once(self, bidding: Bidding, loss: str) -> None:
        """If the request or the response of a cancel is lost, it counts once, with its reason."""
        client = await bidding.client()
        jobs = NodeJobs(client)
        job_id = await submit(jobs)
        getattr(client, loss)(ENDS)
        reply = await jobs.cancel(job_id, "mine")
        assert (reply.state, reply.was_terminal) == (CANCELED, False)
        assert (await jobs.result(job_id)).summary == "mine"

    @pytest.mark.parametrize("loss", LOSSES)
    async def test_place_in_line_that_was_not_answered_is_found_again(self, bidding: Bidding, loss: str) -> None:
        """If the request or the response of an entry into the line is lost, the worker stands in line once."""
        client = await bidding.client()
        hand = await bidding.worker("w")
        getattr(bidding.connection_of("w"), loss)(STANDS_IN_LINE)
        gate = bidding.connection_of("w").hold_read("/waiting", is_watched=True)
        await hand.session.want(1)
        await gate.reached.wait()
        (kind,) = await client.children(client.paths.lines) or []
        assert len(await client.children(f"{client.paths.lines}/{kind}") or []) == 1
        gate.opened.set()
        job_id = await submit(NodeJobs(client))
        assert [lease.job_id for lease in await hand.leases()] == [job_id]


async def expire(connection: FaultyConnection) -> None:
    """Ends a session from outside: another client takes it over and closes it."""
    identity = connection._client.client_id

    def close() -> None:
        thief = KazooClient(connection.hosts, client_id=identity)
        thief.start()
        thief.stop()
        thief.close()

    lost = asyncio.Event()
    connection.when_changed.append(lambda phase: lost.set() if phase is SessionPhase.LOST else None)
    while not lost.is_set():
        await asyncio.to_thread(close)
        with contextlib.suppress(TimeoutError):  # the connection may have taken the session back before it was closed
            await asyncio.wait_for(lost.wait(), 5)


async def refused(gate: Gate) -> None:
    """Sends the held transaction, which the ensemble must refuse."""
    gate.opened.set()
    assert gate.sent is not None
    with pytest.raises(RefusedError):
        await gate.sent


async def opened(bidding: Bidding, connection: FaultyConnection, name: str) -> sessions.BidSession:
    """Opens a session of this worker over a connection whose faults are already set."""

    async def connecting(*_: object) -> FaultyConnection:
        return connection

    work = BidWork(*bidding.place, session_ms=LONG_MS, connecting=connecting)
    return await work.open(Introduction(name, frozenset({"job"})))


class TestExpiry:
    """Sessions that expire while their worker runs a job."""

    async def test_job_of_an_expired_session_runs_elsewhere_and_its_old_report_is_refused(
        self, bidding: Bidding
    ) -> None:
        """A worker whose session expired gets its lease revoked, and only the report of the new holder counts."""
        jobs = NodeJobs(await bidding.client())
        job_id = await submit(jobs)
        old, new = await bidding.worker("old"), await bidding.worker("new")
        (before,) = await old.take()
        await expire(bidding.connection_of("old"))
        await old.until(lambda: before.token in old.revoked)
        with pytest.raises(UnavailableError):
            await old.until(lambda: False)
        (after,) = await new.take()
        assert (after.job_id, after.attempt, after.token > before.token) == (job_id, 2, True)
        again = await bidding.worker("old", held={before.token: job_id})
        assert again.revoked == [before.token]
        await again.report(ReportRow(job_id, before.token, DONE, b"old"))
        assert (await jobs.get(job_id)).state == RUNNING
        await new.done(after, b"new")
        assert (await jobs.result(job_id)).output == b"new"

    @pytest.mark.parametrize("is_recovered", [False, True], ids=["no bid", "a later bid"])
    async def test_report_that_is_under_way_when_the_session_expires_is_refused(
        self, bidding: Bidding, *, is_recovered: bool
    ) -> None:
        """A report that is sent after its session expired is refused, because the transaction checks the bid."""
        jobs = NodeJobs(await bidding.client())
        job_id = await submit(jobs)
        old = await bidding.worker("old")
        (lease,) = await old.take()
        connection = bidding.connection_of("old")
        report, recovery = connection.hold(ENDS), connection.hold(makes("/waiting/"))
        await old.session.report(1, [ReportRow(job_id, lease.token, DONE, b"old")])
        await report.reached.wait()
        await expire(connection)
        await old.until(lambda: lease.token in old.revoked)
        await recovery.reached.wait()
        if not is_recovered:
            await refused(report)
            assert (await jobs.get(job_id)).token == lease.token
        recovery.opened.set()
        new = await bidding.worker("old")  # with the same name only the record tells the attempts apart
        (again,) = await new.take()
        if is_recovered:
            await refused(report)
        assert (await jobs.get(job_id)).token == again.token
        await new.done(again, b"new")
        assert (await jobs.result(job_id)).output == b"new"

    async def test_worker_that_names_an_older_lease_of_a_job_as_well_keeps_the_newer_one(
        self, bidding: Bidding
    ) -> None:
        """A worker that names the leases of its first and second attempt keeps the second."""
        jobs = NodeJobs(await bidding.client())
        (job_id,) = (await jobs.submit([RETRIED], [DRAFT])).job_ids
        hand = await bidding.worker("w")
        (first,) = await hand.take()
        await hand.failed(first)
        (second,) = await hand.take()
        again = await bidding.worker("w", held={second.token: job_id, first.token: job_id})
        assert again.revoked == [first.token]
        await again.done(second)
        assert (await jobs.get(job_id)).token == second.token

    async def test_bid_of_an_older_session_is_refused(self, bidding: Bidding) -> None:
        """An older session of a worker that is about to bid is superseded, and its bid is refused."""
        jobs = NodeJobs(await bidding.client())
        job_id = await submit(jobs)
        old = await bidding.worker("twin")
        gate = bidding.connection_of("twin").hold(TAKES)
        await old.session.want(1)
        await gate.reached.wait()
        new = await bidding.worker("twin")
        gate.opened.set()
        (lease,) = await new.take()
        assert lease.job_id == job_id
        assert (await jobs.get(job_id)).attempts == 1

    async def test_word_for_a_newer_session_is_not_heard_by_an_older_one(self, bidding: Bidding) -> None:
        """Of two sessions of one worker, only the one that holds the job can confirm a cancel request."""
        jobs = NodeJobs(await bidding.client())
        job_id = await submit(jobs)
        await bidding.worker("twin")
        old = bidding.connection_of("twin").hold(deletes("/asked/"))
        hand = await bidding.worker("twin")
        (lease,) = await hand.take()
        new = bidding.connection_of("twin").hold(deletes("/asked/"))
        await jobs.cancel(job_id, "stop")
        await old.reached.wait()
        await new.reached.wait()
        await refused(old)
        new.opened.set()
        await hand.until(lambda: lease.token in hand.cancels)

    async def test_session_that_leaves_takes_nothing_of_a_newer_one_along(
        self, bidding: Bidding, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An older session that leaves does not delete the nodes of a newer session of the same worker."""
        monkeypatch.setattr(sessions, "_CLOSE_S", 60.0)
        old = await bidding.worker("twin")
        gate = bidding.connection_of("twin").hold(deletes("/workers/"))
        leaving = asyncio.create_task(old.session.close())
        await gate.reached.wait()
        new = await bidding.worker("twin")
        await refused(gate)
        await leaving
        job_id = await submit(NodeJobs(await bidding.client()))
        assert [lease.job_id for lease in await new.take()] == [job_id]

    async def test_session_that_could_not_come_takes_nothing_of_an_older_one_along(self, bidding: Bidding) -> None:
        """A session that fails to open does not delete the nodes of an older session of the same worker."""
        old = await bidding.worker("twin")
        connection = await bidding.client()
        connection.lose_request(makes("/workers/"))
        with pytest.raises(UnavailableError):
            await opened(bidding, connection, "twin")
        job_id = await submit(NodeJobs(await bidding.client()))
        (lease,) = await old.take()
        await old.done(lease)
        assert lease.job_id == job_id

    async def test_session_that_expires_while_it_begins_does_not_begin(self, bidding: Bidding) -> None:
        """A session that expires while it opens is UNAVAILABLE, and not superseded."""
        connection = await bidding.client()
        before, gate = connection.hold_read("/held/w:w"), connection.hold_read("/held/w:w")
        before.opened.set()
        opening = asyncio.create_task(opened(bidding, connection, "w"))
        await gate.reached.wait()
        await expire(connection)
        gate.opened.set()
        with pytest.raises(UnavailableError):
            await opening

    async def test_client_whose_session_expired_goes_on_waiting(self, bidding: Bidding) -> None:
        """A client whose session expired sets its watches again, and its wait ends with the job."""
        client = await bidding.client()
        jobs = NodeJobs(client)
        job_id = await submit(jobs)
        hand = await bidding.worker("w")
        (lease,) = await hand.take()
        waiting = asyncio.create_task(jobs.settled(job_id))
        await expire(client)
        await hand.done(lease, b"out")
        _, result = await waiting
        assert result.output == b"out"
        assert await client.transact([Create(f"{client.paths.root}/alive")])
        assert (await jobs.get(await submit(jobs))).state == QUEUED
