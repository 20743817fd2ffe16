"""Edge cases of a session: the library's thread, a blocked event loop, and canceled calls."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.core.lifecycle import CANCELED, QUEUED, RUNNING
from holdfast.errors import NotFoundError, UnavailableError
from holdfast.ports import Introduction, JobDraft
from holdfast.testing.conformance.workplace import Hand, accepted
from holdfast.topologies.zookeeper import ensemble_limits
from holdfast.topologies.zookeeper.backend.connection import EnsembleConnection, SessionPhase
from holdfast.topologies.zookeeper.backend.job_api import NodeJobs
from holdfast.topologies.zookeeper.backend.steward import Steward
from holdfast.topologies.zookeeper.backend.transactions import Put
from holdfast.topologies.zookeeper.backend.work_api import BidWork
from tests.integration.zookeeper.counting_proxy import CountingWay
from tests.integration.zookeeper.faults import JOB, LONG_MS, Bidding, makes, until
from tests.integration.zookeeper.test_races import expire, submit
from tests.zookeeper import Place

SHORT_MS = ensemble_limits.SESSION_MS_MIN


@pytest.fixture
def dead_machine() -> Iterator[str]:
    """A port that neither accepts nor refuses connections."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):  # fills the listener's queue
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                caller.connect(listening.getsockname())
        yield f"127.0.0.1:{listening.getsockname()[1]}"


class StandingStill:
    """Runs `begin` on a loop of its own, and blocks that loop until the block ends."""

    def __init__(self, begin: Callable[[], Awaitable[Callable[[], Awaitable[None]]]]) -> None:
        self._begin = begin
        self._stands, self._goes_on = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def __aenter__(self) -> None:
        self._thread.start()
        await asyncio.to_thread(self._stands.wait)

    async def __aexit__(self, *_: object) -> None:
        self._goes_on.set()
        await asyncio.to_thread(self._thread.join)

    async def _run(self) -> None:
        try:
            end = await self._begin()
        finally:
            self._stands.set()
        self._goes_on.wait()  # blocks, like a handler that does not await
        await end()


class TestLoop:
    """The event loop and the library's thread."""

    async def test_requests_do_not_pile_up_on_a_suspended_connection(self, bidding: Bidding) -> None:
        """A thousand requests on a suspended connection fail as unavailable instead of piling up in the library."""
        way = CountingWay(bidding.place.hosts)
        bidding.place = Place(await way.open(), bidding.place.root)
        client = await bidding.client()
        await way.close()
        await until(lambda: client.phase is SessionPhase.SUSPENDED)
        asked = [client.exists("/") for _ in range(1_000)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(answer) for answer in answers} == {UnavailableError}

    async def test_worker_whose_loop_stands_still_loses_its_job(self, bidding: Bidding) -> None:
        """A worker whose event loop is blocked loses its session, and another worker gets its job."""
        jobs = NodeJobs(await bidding.client())
        job_id = await submit(jobs)

        async def take() -> Callable[[], Awaitable[None]]:
            work = BidWork(*bidding.place, session_ms=SHORT_MS)
            session = await work.open(Introduction("stuck", frozenset({"job"}), slots=1))
            await Hand("stuck", session).take()
            return session.close

        async with StandingStill(take):
            (lease,) = await (await bidding.worker("other")).take()
        assert (lease.job_id, lease.attempt) == (job_id, 2)

    async def test_steward_whose_loop_stands_still_is_passed_over(self, bidding: Bidding) -> None:
        """If the event loop of the first steward is blocked, the next one posts due jobs."""

        async def stand_first() -> Callable[[], Awaitable[None]]:
            connection = EnsembleConnection(*bidding.place, SHORT_MS)
            await connection.open()
            first = Steward(connection)
            await first.start()
            await until(lambda: first.is_waiting)

            async def end() -> None:
                await first.stop()
                await connection.close()

            return end

        async with StandingStill(stand_first):
            jobs = NodeJobs(await bidding.client())
            (job_id,) = accepted(await jobs.submit([JOB], [JobDraft(delay_ms=50)]))
            (lease,) = await (await bidding.worker("w")).take()
        assert lease.job_id == job_id

    async def test_session_ends_though_jobs_have_all_threads(self, bidding: Bidding) -> None:
        """A session can close while handlers use all threads of the loop."""
        hand = await bidding.worker("w")
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        over = threading.Event()
        busy = asyncio.create_task(asyncio.to_thread(over.wait))
        try:
            await hand.session.close()
        finally:
            over.set()
            await busy

    async def test_answer_to_another_question_is_a_lost_connection(self, bidding: Bidding) -> None:
        """A response with an unexpected xid is handled as a lost connection, and the request is repeated."""
        client = await bidding.client()
        jobs = NodeJobs(client)
        job_id = await submit(jobs)
        seen: list[SessionPhase] = []
        client.when_changed.append(seen.append)
        client._client._pending.append((None, client._bridge.async_result(), 0))  # a request that gets no response
        assert (await jobs.get(job_id)).state == QUEUED
        assert seen[:2] == [SessionPhase.SUSPENDED, SessionPhase.CONNECTED]

    async def test_machine_that_is_gone_is_passed_over(self, bidding: Bidding, dead_machine: str) -> None:
        """A connection attempt to a dead machine is abandoned in favour of the next server."""
        connection = EnsembleConnection(f"{dead_machine},{bidding.place.hosts}", bidding.place.root, 4 * LONG_MS)
        connection._client.randomize_hosts = False
        await connection.open()
        await connection.close()

    async def test_client_that_stops_watching_leaves_no_watch(self, bidding: Bidding) -> None:
        """A client that stops watching a job leaves no watch behind."""
        client = await bidding.client()
        jobs = NodeJobs(client)
        job_id = await submit(jobs)
        for _ in range(5):
            watching = jobs.watch(job_id)
            await anext(watching)
            await watching.aclose()
        await until(lambda: not any(client._client._data_watchers.values()))


class TestEnding:
    """Calls that are canceled in the middle."""

    async def test_close_that_is_given_up_leaves_no_bid(self, bidding: Bidding) -> None:
        """A session whose close is canceled still ends, and another worker gets its job."""
        job_id = await submit(NodeJobs(await bidding.client()))
        hand = await bidding.worker("w")
        await hand.take()
        gate = bidding.connection_of("w").hold(makes("/waiting/"))
        closing = asyncio.create_task(hand.session.close())
        await gate.reached.wait()
        assert gate.sent is not None
        gate.sent.cancel()
        closing.cancel()
        await asyncio.wait([closing])
        (lease,) = await (await bidding.worker("other")).take()
        assert lease.job_id == job_id

    async def test_release_that_is_given_up_counts(self, bidding: Bidding) -> None:
        """A release that is canceled still takes effect, and counts no loss."""
        jobs = NodeJobs(await bidding.client())
        job_id = await submit(jobs)
        hand = await bidding.worker("w")
        (lease,) = await hand.take()
        connection = bidding.connection_of("w")
        connection.lose_request(makes("/waiting/"))
        gate = connection.hold_read(job_id)  # the check whether the release was applied
        releasing = asyncio.create_task(hand.session.release([lease.token]))
        await gate.reached.wait()
        releasing.cancel()
        await asyncio.wait([releasing])
        closing = asyncio.create_task(hand.session.close())
        gate.opened.set()
        await closing
        await (await bidding.worker("other")).take()
        assert (await jobs.get(job_id)).losses == 0

    async def test_heartbeat_syncs_with_the_leader_before_it_extends_a_lease(self, bidding: Bidding) -> None:
        """A heartbeat syncs with the leader, because a follower may still show an expired session's node."""
        await submit(NodeJobs(await bidding.client()))
        hand = await bidding.worker("w")
        await hand.take()
        traffic = bidding.connection_of("w").traffic
        before = traffic["sync"]
        await hand.session.extend()
        assert traffic["sync"] == before + 1


class TestOthers:
    """Concurrent changes by another client or worker."""

    async def test_retry_of_a_job_that_is_forgotten_meanwhile_is_refused(self, bidding: Bidding) -> None:
        """A retry of a job that is deleted meanwhile is NOT_FOUND."""
        client, others = await bidding.client(), NodeJobs(await bidding.client())
        job_id = await submit(others)
        assert (await others.cancel(job_id, "")).state == CANCELED
        client.hold_read(job_id).opened.set()  # the check whether it can be retried
        gate = client.hold_read(job_id)  # the size of its payload
        retry_policy = asyncio.create_task(NodeJobs(client).retry(job_id))
        await gate.reached.wait()
        await others.forget(job_id)
        gate.opened.set()
        with pytest.raises(NotFoundError):
            await retry_policy

    async def test_unreadable_record_does_not_keep_a_steward_from_due_jobs(self, bidding: Bidding) -> None:
        """A steward that cannot read the record of a lost worker's job still posts due jobs."""
        client = await bidding.client()
        jobs = NodeJobs(client)
        damaged = await submit(jobs)
        await (await bidding.worker("a")).take()
        assert (await jobs.get(damaged)).state == RUNNING
        await client.transact([Put(client.paths.record(damaged), b"\x02of another version")])
        await expire(bidding.connection_of("a"))
        (job_id,) = accepted(await jobs.submit([JOB], [JobDraft(delay_ms=50)]))
        (lease,) = await (await bidding.worker("b")).take()
        assert lease.job_id == job_id
