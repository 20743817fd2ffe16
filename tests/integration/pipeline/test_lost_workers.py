"""Workers of the pipeline that die, stand still, or lose their coordinator: real processes, real connections.

Leases and heartbeats last for minutes here, so that nothing but a dropped connection can explain a second attempt.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest

from holdfast.core.lifecycle import DONE, FAILED, QUEUED, RUNNING
from holdfast.core.model import Extra, Template
from holdfast.ports import Introduction, JobDraft, JobView
from holdfast.topologies.pipeline.backend.http_client import NotDeliveredError
from holdfast.topologies.pipeline.backend.messages import Asking
from holdfast.topologies.pipeline.backend.store import QueueAssignment, WorkerKind
from holdfast.topologies.pipeline.postgres.connections import StoreConnection
from holdfast.topologies.pipeline.postgres.database import PostgresStore
from tests.e2e.fleet import Fleet, Program, fleet_in
from tests.integration.pipeline.happening import happens
from tests.integration.pipeline.patience import PatientLines
from tests.integration.pipeline.pipeline_here import PipelineHere, Ran
from tests.integration.pipeline.store_work import running

T = TypeVar("T")

MINUTES_MS = 600_000


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Processes that end with the test."""
    with fleet_in(tmp_path) as fleet:
        yield fleet


@pytest.fixture
async def here(store: PostgresStore) -> AsyncIterator[PipelineHere]:
    """A pipeline whose coordinator and watcher would notice nothing by time."""
    pipeline = PipelineHere(store, normal=1, high=0)
    pipeline.heartbeat_ms = MINUTES_MS
    async with pipeline as here:
        here.add_watcher()
        yield here


async def worker_process(fleet: Fleet, here: PipelineHere, database: str, name: str) -> Program:
    """A worker of one slot."""
    program = fleet.start(
        *("pipeline", "worker", "--port", "0", "--coordinator", here.coordinator_address, "--worker-id", name),
        *("--concurrency", "1", "--lease-ms", str(MINUTES_MS)),
        HOLDFAST_DATABASE=database,
    )
    await asyncio.to_thread(program.ready)
    return program


async def long_job(here: PipelineHere, worker: str, work_ms: int = MINUTES_MS) -> str:
    """The id of a job that this worker runs."""
    draft = JobDraft(extra=Extra(work_duration_ms=work_ms))
    (job_id,) = (await here.store.rows.insert([Template("long", simulated=True)], [draft])).job_ids
    await happens(lambda: here.store.rows.get(job_id), lambda view: view.state == RUNNING and view.worker == worker)
    return job_id


async def test_job_of_a_killed_worker_runs_elsewhere_although_its_lease_lasts(
    here: PipelineHere, fleet: Fleet, database: str
) -> None:
    """The dropped connection gives the job back, as a loss, and the queue processes of the dead go to the living."""
    killed = await worker_process(fleet, here, database, "killed")
    job_id = await long_job(here, "killed")
    killed.kill()
    ran = Ran()
    async with here.worker("living", ran.handlers("sim")):
        (view,) = await here.ended([job_id])
    assert (view.state, view.losses, ran.job_ids) == (DONE, 1, [job_id])
    assert (await here.coordinator_stats())["workers_lost"] == 1


async def test_worker_that_stands_still_is_not_lost(here: PipelineHere, fleet: Fleet, database: str) -> None:
    """While a killed worker is found out beside it, a stopped one keeps its job, and ends it in its first attempt."""
    stopped = await worker_process(fleet, here, database, "stopped")
    kept = await long_job(here, "stopped", work_ms=6_000)
    stopped.signal(signal.SIGSTOP)
    killed = await worker_process(fleet, here, database, "killed")
    lost = await long_job(here, "killed")
    killed.kill()
    await happens(lambda: here.store.rows.get(lost), lambda view: view.losses == 1)
    assert await standing(here, kept) == (RUNNING, "stopped", 0)
    stopped.signal(signal.SIGCONT)
    await happens(lambda: here.store.rows.get(kept), lambda view: view.state == DONE)
    assert (await here.store.rows.get(kept)).losses == 0


async def test_worker_that_stops_in_order_loses_nothing(here: PipelineHere, fleet: Fleet, database: str) -> None:
    """What it hands back costs no loss, and the coordinator does not count it as lost."""
    stopped = await worker_process(fleet, here, database, "stopped")
    job_id = await long_job(here, "stopped")
    for _ in range(2):
        stopped.signal(signal.SIGTERM)
    await asyncio.to_thread(stopped.wait)
    assert await standing(here, job_id) == (QUEUED, "", 0)
    await another_is_lost(here, fleet, database)
    assert (await here.coordinator_stats())["workers_lost"] == 1


async def test_worker_that_said_goodbye_does_not_register_again(store: PostgresStore) -> None:
    """However late the answer to its goodbye comes, its heartbeats ask for no new assignment meanwhile."""
    here = PipelineHere(store, normal=1, high=0)
    here.lines = lines = LateGoodbye()
    async with here:
        session = await here.work().open(Introduction("w-1", frozenset({"echo"})))
        await happens(lambda: value(lines.under_way), lambda paths: "/coordinator/heartbeat" in paths)
        await session.close()
        assert (await here.coordinator_stats())["workers"] == []


class LateGoodbye(PatientLines):
    """Answers a goodbye only when all other calls of the worker are over, or when it has registered again."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way: list[str] = []
        self.registrations = 0

    async def _call(self, method: str, address: str, path: str, *more: Any) -> bytes:  # noqa: ANN401 - as Lines has
        self.under_way.append(path)
        try:
            answer = await super()._call(method, address, path, *more)
        finally:
            self.under_way.remove(path)
        self.registrations += path == "/coordinator/request-assignment"
        if path == "/coordinator/release-assignment":
            await happens(lambda: value(not self.under_way or self.registrations > 1))
        return answer


async def test_coordinator_that_restarts_loses_no_worker(here: PipelineHere, fleet: Fleet, database: str) -> None:
    """The worker returns, keeps its job, and is noticed by the new coordinator when it dies."""
    worker = await worker_process(fleet, here, database, "w-1")
    job_id = await long_job(here, "w-1")
    await here.stop_coordinator()
    await here.start_coordinator()
    await happens(lambda: connections(here), lambda count: count == 1)
    await another_is_lost(here, fleet, database)
    assert await standing(here, job_id) == (RUNNING, "w-1", 0)
    worker.kill()
    await happens(lambda: here.store.rows.get(job_id), lambda view: view.losses == 1)


async def test_connection_that_drops_alone_loses_no_worker(here: PipelineHere) -> None:
    """A worker whose process lives returns at once, and keeps what it runs."""
    ran = Ran()
    ran.go.clear()
    async with here.worker("w-1", ran.handlers()):
        (job_id,) = await here.submit()
        await happens(lambda: here.store.rows.get(job_id), lambda view: view.state == RUNNING)
        await happens(lambda: connections(here), lambda count: count == 1)
        here.drop("/coordinator/presence")
        await happens(lambda: connections(here), lambda count: count == 0)
        await happens(lambda: connections(here), lambda count: count == 1)
        ran.go.set()
        (view,) = await here.ended([job_id])
    assert (view.state, view.losses, len(ran.job_ids)) == (DONE, 0, 1)


async def test_worker_returns_while_the_database_is_busy(
    here: PipelineHere, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dropped connection is made again although the worker's word in the database waits for its turn."""
    waits, never = asyncio.Event(), asyncio.Event()

    async def live(_worker: str, _session: str) -> None:
        waits.set()
        await never.wait()

    monkeypatch.setattr(store.runs, "live", live)
    async with here.worker("w-1", Ran().handlers()):
        await happens(lambda: connections(here), lambda count: count == 1)
        here.drop("/coordinator/presence")
        await happens(lambda: connections(here), lambda count: count == 0)
        await waits.wait()
        await happens(lambda: connections(here), lambda count: count == 1)


async def test_worker_that_dies_after_a_word_in_the_database_is_lost(store: PostgresStore) -> None:
    """A worker that said once that it lives, and then no more, is found by its coordinator and not by its lease."""
    here = PipelineHere(store, normal=1, high=0)
    here.heartbeat_ms, here.missed_max = 100, 1_000_000
    async with here:
        address = here.coordinator_address
        ask = Asking(worker_id="w", session="s", types=["echo"])
        await here.lines.ask(address, "/coordinator/request-assignment", ask)
        job = await running(store)
        await happens(store.places.all)
        begun = asyncio.Event()
        present = {"worker_id": "w", "session": "s"}
        held = asyncio.create_task(here.lines.hold(address, "/coordinator/presence", present, begun=begun.set))
        await begun.wait()
        await happens(lambda: connections(here))
        held.cancel()
        await happens(lambda: connections(here), lambda count: count == 0)
        await store.runs.live("w", "s")
        await happens(lambda: store.rows.get(job.job_id), lambda view: (view.state, view.losses) == (QUEUED, 1))


async def test_worker_that_speaks_only_in_the_database_is_not_lost(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a worker is cut off from its coordinator, its word once a heartbeat keeps it from being taken for lost."""
    here = PipelineHere(store, normal=1, high=0)
    here.heartbeat_ms, here.missed_max = 3_000, 1_000_000
    here.lines = lines = CutLines()
    answers: list[bool] = []
    lose = store.places.lose

    async def recorded(worker: str, session: str, silent_ms: int) -> bool:
        answers.append(await lose(worker, session, silent_ms))
        return answers[-1]

    monkeypatch.setattr(store.places, "lose", recorded)
    async with here:
        session = await here.work().open(Introduction("w-1", frozenset({"echo"})))
        await happens(lambda: connections(here))
        lines.is_cut = True
        here.drop("/coordinator/presence")
        await happens(lambda: value(answers), lambda found: len(found) > 1 or any(found))
        assert answers == [False, False]
        lines.is_cut = False
        await happens(lambda: connections(here))
        await session.close()


class CutLines(PatientLines):
    """Lines that can be cut; calls that are under way by then go on."""

    is_cut = False

    async def _call(self, *call: Any) -> bytes:  # noqa: ANN401 - as Lines has
        self._refuse_if_cut()
        return await super()._call(*call)

    async def hold(self, *call: Any, **more: Any) -> None:  # noqa: ANN401 - as Lines has
        self._refuse_if_cut()
        await super().hold(*call, **more)

    def _refuse_if_cut(self) -> None:
        if self.is_cut:
            message = "the line is cut"
            raise NotDeliveredError(message)


async def another_is_lost(here: PipelineHere, fleet: Fleet, database: str) -> None:
    """Return when a worker that was killed now is counted: the grace of every earlier one is over by then."""
    before = await connections(here)
    killed = await worker_process(fleet, here, database, "another")
    await happens(lambda: connections(here), lambda count: count == before + 1)
    killed.kill()

    async def seats() -> list[str]:
        return [seat["worker_id"] for seat in (await here.coordinator_stats())["workers"]]

    await happens(seats, lambda workers: "another" not in workers)


async def value(read: T) -> T:
    """For `happens`."""
    return read


async def connections(here: PipelineHere) -> int:
    """How many workers keep one."""
    return len(here.coordinator._presence)


async def standing(here: PipelineHere, job_id: str) -> tuple[int, str, int]:
    """Its state, who has it, and how often it was lost."""
    view: JobView = await here.store.rows.get(job_id)
    return view.state, view.worker, view.losses


PLACE = QueueAssignment("w", "s", WorkerKind(("echo",)), 1, ())


async def test_store_takes_the_leases_of_a_lost_session_back(store: PostgresStore) -> None:
    """All of them, each as a loss by the rules of the core; the last loss that a job may have ends it."""
    await store.places.save([PLACE])
    jobs = [
        await running(store),
        await running(store, Template("echo", max_losses=0)),
        await running(store, worker="v"),
    ]
    assert await store.places.lose("w", "s", 0)
    views = [await store.rows.get(job.job_id) for job in jobs]
    assert [(view.state, view.losses) for view in views] == [(QUEUED, 1), (FAILED, 1), (RUNNING, 0)]
    assert await store.places.all() == []
    assert (await store.runs.extend("w", [jobs[0].token], MINUTES_MS)).held == []


@pytest.mark.parametrize("session", ["s", "later"])
async def test_store_loses_no_worker_that_was_heard_of(store: PostgresStore, session: str) -> None:
    """A worker that said itself that it lives, or has come back in another session, keeps what it has."""
    await store.places.save([QueueAssignment("w", "s", WorkerKind(("echo",)), 1, (), heard_ms_ago=MINUTES_MS)])
    job = await running(store)
    if session == "s":
        await store.runs.live("w", "s")
    else:
        await store.runs.arrive("w", {job.token: job.job_id}, MINUTES_MS, session=session)
    assert not await store.places.lose("w", "s", MINUTES_MS // 2)
    assert (await store.rows.get(job.job_id)).state == RUNNING


async def test_coordinator_that_writes_late_does_not_put_an_old_session_back(store: PostgresStore) -> None:
    """After a worker has begun a new session elsewhere, what its old coordinator writes down changes nothing."""
    await store.places.save([PLACE])
    await store.runs.arrive("w", {}, MINUTES_MS, session="later")
    await store.places.save([QueueAssignment("w", "later", WorkerKind(("echo",)), 1, ("7001",))])
    await store.places.save([PLACE])
    (place,) = await store.places.all()
    assert (place.session, place.queues) == ("later", ("7001",))
    job = await running(store)
    assert not await store.places.lose("w", "s", 0)
    assert await store.places.lose("w", "later", 0)
    assert (await store.rows.get(job.job_id)).losses == 1


async def test_place_of_a_session_that_ended_elsewhere_makes_room(store: PostgresStore) -> None:
    """An old session that nothing was heard of for long is replaced by the one that the coordinator knows."""
    await store.places.save([QueueAssignment("w", "s", WorkerKind(("echo",)), 1, (), heard_ms_ago=MINUTES_MS)])
    async with PipelineHere(store, normal=1, high=0) as here:
        ask = Asking(worker_id="w", session="later", types=["echo"])
        await here.lines.ask(here.coordinator_address, "/coordinator/request-assignment", ask)
        await happens(store.places.all, lambda places: [place.session for place in places] == ["later"])


async def test_what_a_coordinator_heard_long_ago_is_no_sign_of_life(store: PostgresStore) -> None:
    """A place that is written down late says when its worker was heard of, and never less than the worker did."""
    await store.places.save([QueueAssignment("w", "s", WorkerKind(("echo",)), 1, (), heard_ms_ago=MINUTES_MS)])
    (place,) = await store.places.all()
    assert place.heard_ms_ago >= MINUTES_MS
    await store.runs.live("w", "s")
    await store.places.save([QueueAssignment("w", "s", WorkerKind(("echo",)), 1, (), heard_ms_ago=MINUTES_MS)])
    (place,) = await store.places.all()
    assert place.heard_ms_ago < MINUTES_MS


async def test_drain_that_was_asked_for_ends_with_its_session(store: PostgresStore) -> None:
    """A process that comes back under the name of a draining one works."""
    await store.places.save([PLACE])
    await store.places.ask_to_drain("w")
    await store.runs.arrive("w", {}, MINUTES_MS, session="later")
    (place,) = await store.places.all()
    assert (place.session, place.is_draining) == ("later", False)


async def test_worker_that_hands_back_slowly_keeps_its_connection_meanwhile(here: PipelineHere, database: str) -> None:
    """A database that takes its time makes no lost worker of one that stops in order."""
    ran = Ran()
    ran.go.clear()
    async with (
        await psycopg.AsyncConnection.connect(database) as other,
        here.worker("w-1", ran.handlers()) as worker,
    ):
        (job_id,) = await here.submit()
        await happens(lambda: here.store.rows.get(job_id), lambda view: view.state == RUNNING)
        await other.execute("SELECT FROM holdfast.jobs WHERE id = %s FOR UPDATE", (job_id,))
        for _ in range(2):
            worker.worker.stop()
        await happens(lambda: waiting(here), bool)
        assert await connections(here) == 1
        await other.rollback()
        await happens(lambda: standing(here, job_id), (QUEUED, "", 0).__eq__)


async def waiting(here: PipelineHere) -> int:
    """How many transactions wait for a lock."""

    async def ask(connection: StoreConnection) -> int:
        (count,) = await (await connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")).fetchone() or (
            0,
        )
        return int(count)

    return await here.store.database.ask(ask)
