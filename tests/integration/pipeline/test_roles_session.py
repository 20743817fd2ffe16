"""A worker's session in the pipeline while the roles and the database stop and restart."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import CANCELED, DONE, QUEUED, RUNNING
from holdfast.errors import InvalidArgumentError, UnavailableError
from holdfast.ports import Assignment, Directive, Introduction
from holdfast.process.private_postgres import PrivatePostgres
from holdfast.topologies.pipeline.backend.messages import PushTickets
from holdfast.topologies.pipeline.backend.worker_session import PipelineSession
from holdfast.topologies.pipeline.postgres.database import PostgresStore
from tests.integration.pipeline.long_timeouts import HURRY_S, open_patiently, wait_for_connections
from tests.integration.pipeline.pipeline_in_process import PipelineHere, Ran
from tests.integration.pipeline.test_roles_queue import ticket
from tests.integration.pipeline.wait_until import happens
from tests.postgres import QUICK, require_postgres

ECHO = frozenset({"echo"})


@pytest.fixture(scope="module")
def own_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivatePostgres]:
    """A server that these tests may stop."""
    require_postgres()
    server = PrivatePostgres(tmp_path_factory.mktemp("own"), QUICK)
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def own_store(own_postgres: PrivatePostgres) -> AsyncIterator[PostgresStore]:
    """A store over that server."""
    async with await open_patiently(own_postgres.url()) as store:
        yield store


async def leased(session: PipelineSession, count: int) -> list[Assignment]:
    """Reads directives until the given number of leases has come."""
    leases: list[Assignment] = []
    while len(leases) < count:
        leases += (await session.next()).leases
    return leases


async def told(session: PipelineSession, field: str) -> Directive:
    """Reads directives until one has this field."""
    while True:
        directive = await session.next()
        if getattr(directive, field):
            return directive


async def shelve(here: PipelineHere, job_ids: list[str]) -> None:
    """Puts tickets on the shelf of the first queue process."""
    tickets = [ticket(job_id, number) for number, job_id in enumerate(job_ids)]
    await here.lines.ask(here.normal[0].address, "/queue/push", PushTickets(jobs=tickets))


async def test_session_keeps_the_contract_of_its_port(store: PostgresStore) -> None:
    """A session gets leases as wanted, cancels, losses and acknowledgements, and returns its leases when it closes."""
    async with PipelineHere(store, normal=1, high=0) as here:
        session = await here.work().open(Introduction("w-1", ECHO, slots=4))
        first = await session.next()
        assert (first.lease_ms, first.heartbeat_ms) == (60_000, 100)
        job_ids = await here.submit(6)
        await shelve(here, job_ids)
        await session.want(4)
        done, canceled, lost, released = await leased(session, 4)
        assert [one.job_id for one in (done, canceled, lost, released)] == job_ids[:4]

        await store.rows.cancel(canceled.job_id, "")
        await session.extend()
        assert (await told(session, "cancels")).cancels == [canceled.token]
        rows = [ReportRow(done.job_id, done.token, DONE), ReportRow(canceled.job_id, canceled.token, CANCELED)]
        await session.report(7, rows)
        assert (await told(session, "reported")).reported == 7
        assert [view.state for view in await here.ended(job_ids[:2])] == [DONE, CANCELED]

        await store.leases.release("w-1", [lost.token], is_spent=True)
        await session.extend()
        assert (await told(session, "revoked")).revoked == [lost.token]

        await session.release([released.token])
        view = await store.rows.get(released.job_id)
        assert (view.state, view.losses) == (QUEUED, 0)

        await session.want(1)
        (kept,) = await leased(session, 1)
        await session.drain()
        await told(session, "is_drained")
        await session.close()
        view = await store.rows.get(kept.job_id)
        assert (view.state, view.losses) == (QUEUED, 0)
        assert (await here.coordinator_stats())["workers"] == []


async def test_undelivered_jobs_return_without_a_loss(store: PostgresStore) -> None:
    """A session that closes without a drain returns started jobs as losses, and undelivered ones without a loss."""
    async with PipelineHere(store, normal=1, high=0) as here:
        session = await here.work().open(Introduction("w-1", ECHO, slots=4))
        await session.next()
        job_ids = await here.submit(2)
        await shelve(here, job_ids[:1])
        await session.want(2)
        await leased(session, 1)
        await shelve(here, job_ids[1:])
        await happens(lambda: store.rows.get(job_ids[1]), lambda view: view.state == RUNNING)
        await session.close()
        views = [await store.rows.get(job_id) for job_id in job_ids]
        assert [(view.state, view.losses) for view in views] == [(QUEUED, 1), (QUEUED, 0)]


async def test_held_leases_are_kept_over_sessions(store: PostgresStore) -> None:
    """A new session keeps the leases that it names and still holds, and is notified of the others."""
    async with PipelineHere(store, normal=1, high=0) as here:
        (job_id,) = await here.submit()
        (lease,) = await store.leases.start("w-1", [job_id], 5_000)
        session = await here.work().open(Introduction("w-1", ECHO, held={lease.token: job_id, 99: "gone"}))
        first = await session.next()
        assert first.revoked == [99]
        await session.report(1, [ReportRow(job_id, lease.token, DONE)])
        assert (await told(session, "reported")).reported == 1
        await session.close()
        with pytest.raises(UnavailableError):
            await session.want(1)


async def test_tickets_beyond_the_room_are_put_back(store: PostgresStore) -> None:
    """A worker without a free slot returns surplus tickets at once, and another worker gets them."""
    async with PipelineHere(store, normal=2, high=0) as here:
        busy = await here.work().open(Introduction("busy", ECHO))
        await busy.next()
        await busy.want(1)
        job_ids = await here.submit(2)
        for queue, job_id in zip(here.normal, job_ids, strict=True):
            await here.lines.ask(queue.address, "/queue/push", PushTickets(jobs=[ticket(job_id)]))
        await leased(busy, 1)
        idle = await here.work().open(Introduction("idle", ECHO))
        await idle.next()
        await idle.want(1)
        await leased(idle, 1)
        assert [(await store.rows.get(job_id)).state for job_id in job_ids] == [RUNNING, RUNNING]
        for session in (busy, idle):
            await session.drain()
            await session.close()


async def test_queue_process_that_comes_back_is_used_again(store: PostgresStore) -> None:
    """A worker that waits at a queue process continues there after the queue process has restarted."""
    async with PipelineHere(store, normal=1, high=0) as here:
        session = await here.work().open(Introduction("w-1", ECHO))
        await session.next()
        await session.want(1)
        queue = here.normal[0]
        await happens(lambda: here.lines.ask(queue.address, "/queue/stats"), lambda stats: stats["workers_waiting"])
        await queue.kill()
        await queue.start()
        job_ids = await here.submit()
        await shelve(here, job_ids)
        assert [one.job_id for one in await leased(session, 1)] == job_ids
        await session.close()


async def test_impossible_names_are_refused(store: PostgresStore) -> None:
    """An invalid worker name is refused before any call, and so is an invalid outcome in a report."""
    async with PipelineHere(store) as here:
        with pytest.raises(InvalidArgumentError):
            await here.work().open(Introduction("no spaces", ECHO))
        session = await here.work().open(Introduction("w-1", ECHO))
        with pytest.raises(InvalidArgumentError):
            await session.report(1, [ReportRow("a", 1, int(RUNNING))])
        await session.close()


async def test_database_that_goes_and_comes_back_costs_no_job(
    own_postgres: PrivatePostgres, own_store: PostgresStore
) -> None:
    """Jobs run on while the database is down, and their outcomes are stored when it is back."""
    ran = Ran()
    async with PipelineHere(own_store) as here, here.worker("w-1", ran.handlers(), slots=3):
        here.add_watcher()
        ran.go.clear()
        job_ids = await here.submit(10)
        await happens(lambda: _value(len(ran.job_ids)), lambda count: count == 3)
        wait_for_connections(own_store, HURRY_S)
        await asyncio.to_thread(own_postgres.crash)
        ran.go.set()
        await here.lines.ask(here.coordinator_address, "/coordinator/stats")
        views = await here.ended(job_ids)  # the private PostgreSQL restarts by itself
        assert {view.state for view in views} == {DONE}
        assert set(ran.job_ids) == set(job_ids)


async def test_leases_are_given_up_by_the_own_clock(own_postgres: PrivatePostgres, own_store: PostgresStore) -> None:
    """A worker that cannot reach the store for the length of its leases revokes them by its own clock."""
    async with PipelineHere(own_store, normal=1, high=0) as here:
        session = await here.work(lease_ms=400).open(Introduction("w-own", ECHO))
        await session.next()
        await session.want(1)
        listening = asyncio.create_task(leased(session, 1))  # a lease that is read after its end would not be returned
        await shelve(here, await here.submit())
        (lease,) = await listening
        wait_for_connections(own_store, HURRY_S)
        await asyncio.to_thread(own_postgres.stop)
        await session.extend()
        assert (await told(session, "revoked")).revoked == [lease.token]
        await asyncio.to_thread(own_postgres.start)
        await session.close()


async def _value(value: int) -> int:
    await asyncio.sleep(0)
    return value


async def test_worker_never_counts_on_a_lease_for_longer_than_the_store_does(store: PostgresStore) -> None:
    """A heartbeat soon after a start does not extend the lease, and the worker counts on no longer lease."""
    async with PipelineHere(store, normal=1, high=0) as here:
        session = await here.work().open(Introduction("w-1", ECHO))
        (job_id,) = await here.submit()
        await shelve(here, [job_id])
        await session.want(1)
        await leased(session, 1)
        granted = await store.rows.standing(job_id)
        await happens(store.queues.now_ms, lambda now_ms: now_ms > granted.now_ms + 300)
        await session.extend()
        kept = await store.rows.standing(job_id)
        counted_on_s = session._held_leases.next_s()
        assert counted_on_s is not None
        assert (counted_on_s - time.monotonic()) * 1_000 <= kept.lease_until_ms - kept.now_ms
        await session.close()
