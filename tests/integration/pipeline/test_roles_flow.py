"""Jobs through watchers, exchanges, queue processes and workers, while some of these die."""

import asyncio

from holdfast.core.lifecycle import CANCELED, DONE, QUEUED
from holdfast.core.model import Template
from holdfast.ports import Introduction, JobDraft
from holdfast.topologies.pipeline.backend.messages import PushTickets, RoutedTickets
from holdfast.topologies.pipeline.postgres.database import PostgresStore
from holdfast.topologies.pipeline.roles.assignment import queue_index
from holdfast.topologies.pipeline.roles.exchange_clients import ExchangeClients
from holdfast.topologies.pipeline.roles.role_server import RoleServer
from tests.integration.http_client import ask
from tests.integration.pipeline.pipeline_in_process import PipelineHere, Ran
from tests.integration.pipeline.test_roles_queue import ticket
from tests.integration.pipeline.wait_until import happens


async def test_jobs_flow_from_the_store_to_workers_and_back(store: PostgresStore) -> None:
    """Every job runs once and ends with its output, whichever path it takes."""
    ran = Ran()
    async with PipelineHere(store) as here, here.worker("w-1", ran.handlers()), here.worker("w-2", ran.handlers()):
        here.add_watcher()
        here.add_watcher()
        job_ids = [*await here.submit(60), *await here.submit(20, Template("echo", priority=8))]
        views = await here.ended(job_ids)
        assert {view.state for view in views} == {DONE}
        assert sorted(ran.job_ids) == sorted(job_ids)
        assert (await store.rows.result(job_ids[7])).output == b"7"

        async def shelved() -> int:
            listed = [await here.lines.ask(queue.address, "/queue/stats") for queue in (*here.normal, *here.high)]
            return sum(one["waiting"] + one["leased"] for one in listed)

        await happens(shelved, lambda count: count == 0)


async def test_tickets_that_die_with_their_queue_process_are_claimed_again(store: PostgresStore) -> None:
    """Rows whose tickets are lost with a queue process become visible after the timeout, and each job runs once."""
    ran = Ran()
    async with PipelineHere(store, normal=1, high=0) as here:
        here.add_watcher()
        idle = await here.work().open(Introduction("w-0", frozenset({"echo"})))  # knows the type, and requests no jobs
        job_ids = await here.submit(5)
        await happens(lambda: _value(here.normal[0].role._ticket_store.waiting), lambda count: count == 5)
        await here.normal[0].kill()
        await here.normal[0].start()
        async with here.worker("w-1", ran.handlers()):
            views = await here.ended(job_ids)
        await idle.close()
        assert {view.state for view in views} == {DONE}
        assert sorted(ran.job_ids) == sorted(job_ids)


async def test_one_dead_queue_process_stops_no_job(store: PostgresStore) -> None:
    """Jobs whose queue process is down are claimed again at once and run through another one."""
    ran = Ran()
    async with PipelineHere(store, normal=2, high=0) as here, here.worker("w-1", ran.handlers()):
        await here.normal[0].kill()
        here.add_watcher(visibility_ms=60_000)
        job_ids = await here.submit(10)
        assert {view.state for view in await here.ended(job_ids)} == {DONE}


async def test_doubled_tickets_start_once(store: PostgresStore) -> None:
    """A job with tickets on two shelves runs once, and the second ticket is dropped."""
    ran = Ran()
    async with PipelineHere(store, normal=2, high=0) as here:
        (job_id,) = await here.submit()
        for queue in here.normal:
            await here.lines.ask(queue.address, "/queue/push", PushTickets(jobs=[ticket(job_id)]))
        async with here.worker("w-1", ran.handlers(), slots=5), here.worker("w-2", ran.handlers(), slots=5):
            await here.ended([job_id])

            async def left() -> int:
                return sum(len(queue.role._ticket_store) for queue in here.normal)

            await happens(left, lambda count: count == 0)
        assert ran.job_ids == [job_id]


async def test_canceled_on_the_shelf_never_runs(store: PostgresStore) -> None:
    """A job that is canceled while its ticket is on a shelf never runs."""
    ran = Ran()
    async with PipelineHere(store, normal=1, high=0) as here:
        gone, kept = await here.submit(2)
        pushed = PushTickets(jobs=[ticket(gone, 1), ticket(kept, 2)])
        await here.lines.ask(here.normal[0].address, "/queue/push", pushed)
        await store.rows.cancel(gone, "")
        async with here.worker("w-1", ran.handlers()):
            views = await here.ended([gone, kept])
        assert [view.state for view in views] == [CANCELED, DONE]
        assert ran.job_ids == [kept]


async def test_unknown_types_fill_no_place(store: PostgresStore) -> None:
    """Jobs of a type that no worker knows stay in the database and do not delay others."""
    ran = Ran()
    async with PipelineHere(store, normal=1, high=0, lane_max=5) as here, here.worker("w-1", ran.handlers()):
        strange = await here.submit(50, Template("strange"))
        here.add_watcher(batch=5)
        job_ids = await here.submit(20)
        assert {view.state for view in await here.ended(job_ids)} == {DONE}
        await happens(lambda: _value(here.normal[0].role._ticket_store.lanes()), lambda lanes: lanes == {})
        assert (await store.rows.get(strange[0])).state == QUEUED


async def test_a_slow_type_holds_up_no_other(store: PostgresStore) -> None:
    """Jobs of a full lane stay in the database, and jobs of another type run."""
    slow, quick = Ran(), Ran()
    slow.go.clear()
    handlers = {**slow.handlers("slow"), **quick.handlers("quick")}
    async with PipelineHere(store, normal=1, high=0, lane_max=3) as here:
        # One worker for each type: the only slot of the slow one is taken.
        slow_worker = here.worker("w-slow", {"slow": handlers["slow"]}, slots=1)
        quick_worker = here.worker("w-quick", {"quick": handlers["quick"]}, slots=2)
        async with slow_worker, quick_worker:
            watcher = here.add_watcher(batch=4)
            slow_ids = await here.submit(30, Template("slow"))
            await happens(
                lambda: _value(watcher._full.all()),
                lambda lanes: lanes == [("default", "slow", is_high) for is_high in (False, True)],
            )
            quick_ids = await here.submit(20, Template("quick"))
            assert {view.state for view in await here.ended(quick_ids)} == {DONE}
            slow.go.set()
            assert {view.state for view in await here.ended(slow_ids)} == {DONE}


async def test_high_never_blocks_normal_entirely(store: PostgresStore) -> None:
    """With high tickets always waiting, normal ones get one of five grants."""
    order: list[str] = []
    async with PipelineHere(store, normal=1, high=1) as here:
        urgent = await here.submit(40, Template("echo", priority=9))
        usual = await here.submit(40)
        exchanges = ExchangeClients(here.exchange_addresses, here.lines)
        tickets = [ticket(job_id, number, priority=9) for number, job_id in enumerate(urgent)]
        tickets += [ticket(job_id, number) for number, job_id in enumerate(usual)]
        assert await exchanges.push(tickets, 0) == RoutedTickets(80)
        session = await here.work().open(Introduction("w-1", frozenset({"echo"}), slots=1))
        for _ in range(40):
            await session.want(1)
            lease = None
            while lease is None:
                lease = next(iter((await session.next()).leases), None)
            order.append("high" if lease.job_id in urgent else "normal")
        await session.drain()
        await session.close()
        assert order.count("normal") == 8
        assert order.count("high") == 32
        gaps = "".join("n" if one == "normal" else "h" for one in order).split("n")
        assert max(map(len, gaps)) <= 5


async def test_high_that_fills_its_queue_processes_keeps_no_normal_in_the_database(store: PostgresStore) -> None:
    """A flood of high tickets that fills its lane does not keep normal tickets of the same type in the database."""
    async with PipelineHere(store, normal=1, high=1, lane_max=5) as here:
        idle = await here.work().open(Introduction("w-0", frozenset({"echo"})))  # knows the type, and requests no jobs
        await here.submit(200, Template("echo", priority=8))
        await here.submit(3)
        here.add_watcher(batch=5)
        await happens(lambda: _value(here.normal[0].role._ticket_store.waiting), lambda count: count == 3)
        await idle.close()


async def test_full_lane_goes_elsewhere_when_its_queue_process_dies(store: PostgresStore) -> None:
    """Jobs that wait for capacity in a queue process which dies run through another one."""
    ran = Ran()
    async with PipelineHere(store, normal=2, high=0, lane_max=5) as here:
        watcher = here.add_watcher(batch=5)
        idle = await here.work().open(Introduction("w-0", frozenset({"echo"})))
        job_ids = await here.submit(30)
        await happens(lambda: _value(watcher._full.all()))
        await here.normal[queue_index("echo", 1, 2)].kill()
        async with here.worker("w-1", ran.handlers()):
            assert {view.state for view in await here.ended(job_ids)} == {DONE}
        await idle.close()


async def test_job_that_comes_due_soon_after_another_is_not_late(store: PostgresStore) -> None:
    """A watcher wakes up when the next row becomes visible, however long its poll interval is."""
    ran = Ran()
    async with PipelineHere(store) as here, here.worker("w-1", ran.handlers()):
        watcher = here.add_watcher(poll_ms=600_000)
        await happens(lambda: _value(watcher._kinds))
        now_ms = await store.queues.now_ms()
        drafts = [JobDraft(payload=b"", not_before_ms=now_ms + 300 * number) for number in (1, 2, 3)]
        await here.ended((await store.rows.insert([Template("echo")], drafts)).job_ids)


async def test_watchers_serve_their_numbers(store: PostgresStore) -> None:
    """A watcher serves its numbers under both paths and as metrics."""
    ran = Ran()
    async with PipelineHere(store) as here, here.worker("w-1", ran.handlers()):
        watcher = here.add_watcher()
        await here.ended(await here.submit(3))
        await happens(lambda: _value(watcher.tally.view()["delivered"] >= 3))
        server = RoleServer(watcher.routes(), watcher.vitals())
        address = await server.start("127.0.0.1", 0)
        for path in ("/watcher/stats", "/stats"):
            told = (await ask(address, "GET", path)).json
            assert told["claimed"] >= 3
            assert told["delivered"] >= 3
            assert told["kinds"] == [{"routes": ["echo"], "queues": []}]
        assert "holdfast_watcher_claimed_total" in (await ask(address, "GET", "/metrics")).body.decode()
        await server.stop(0)


async def test_idle_job_is_taken_at_once(store: PostgresStore) -> None:
    """With long poll intervals, notifications and long polls carry a job to an idle worker at once."""
    ran = Ran()
    async with PipelineHere(store) as here, here.worker("w-1", ran.handlers()):
        watcher = here.add_watcher(poll_ms=600_000)
        await happens(lambda: _value(watcher._kinds))
        for _ in range(3):
            await here.ended(await here.submit())


async def _value(value: object) -> object:
    await asyncio.sleep(0)
    return value
