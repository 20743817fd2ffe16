"""Workers of the pipeline that die, pause, or lose their coordinator: real processes, real connections.

Leases and heartbeats last for minutes here, so that only a dropped connection can cause a second attempt.
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
from holdfast.topologies.pipeline.backend.messages import AssignmentRequest
from holdfast.topologies.pipeline.backend.store import QueueAssignment, WorkerKind
from holdfast.topologies.pipeline.postgres.connections import StoreConnection
from holdfast.topologies.pipeline.postgres.database import PostgresStore
from tests.e2e.fleet import Fleet, Program, fleet_in
from tests.integration.pipeline.long_timeouts import PatientLines
from tests.integration.pipeline.pipeline_in_process import PipelineHere, Ran
from tests.integration.pipeline.store_work import running
from tests.integration.pipeline.wait_until import happens

T = TypeVar("T")

MINUTES_MS = 600_000


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Processes that end with the test."""
    with fleet_in(tmp_path) as fleet:
        yield fleet


@pytest.fixture
async def here(store: PostgresStore) -> AsyncIterator[PipelineHere]:
    """A pipeline whose coordinator and watcher detect no loss by time."""
    pipeline = PipelineHere(store, normal=1, high=0)
    pipeline.heartbeat_ms = MINUTES_MS
    async with pipeline as here:
        here.add_watcher()
        yield here


async def worker_process(fleet: Fleet, here: PipelineHere, database: str, name: str) -> Program:
    """Starts a worker with one slot."""
    program = fleet.start(
        *("pipeline", "worker", "--port", "0", "--coordinator", here.coordinator_address, "--worker-id", name),
        *("--concurrency", "1", "--lease-ms", str(MINUTES_MS)),
        HOLDFAST_DATABASE=database,
    )
    await asyncio.to_thread(program.ready)
    return program


async def long_job(here: PipelineHere, worker: str, work_ms: int = MINUTES_MS) -> str:
    """Submits a job that this worker runs, and returns its id."""
    draft = JobDraft(extra=Extra(work_duration_ms=work_ms))
    (job_id,) = (await here.store.rows.insert([Template("long", simulated=True)], [draft])).job_ids
    await happens(lambda: here.store.rows.get(job_id), lambda view: view.state == RUNNING and view.worker == worker)
    return job_id


async def test_job_of_a_killed_worker_runs_elsewhere_although_its_lease_lasts(
    here: PipelineHere, fleet: Fleet, database: str
) -> None:
    """When a worker is killed, its dropped connection returns the job as a loss, and another worker runs it."""
    killed = await worker_process(fleet, here, database, "killed")
    job_id = await long_job(here, "killed")
    killed.kill()
    ran = Ran()
    async with here.worker("living", ran.handlers("sim")):
        (view,) = await here.ended([job_id])
    assert (view.state, view.losses, ran.job_ids) == (DONE, 1, [job_id])
    assert (await here.coordinator_stats())["workers_lost"] == 1


async def test_worker_that_stands_still_is_not_lost(here: PipelineHere, fleet: Fleet, database: str) -> None:
    """A stopped worker keeps its job and finishes it in the first attempt, while a killed one is found lost."""
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
    """A worker that stops in order returns its job without a loss and is not counted as lost."""
    stopped = await worker_process(fleet, here, database, "stopped")
    job_id = await long_job(here, "stopped")
    for _ in range(2):
        stopped.signal(signal.SIGTERM)
    await asyncio.to_thread(stopped.wait)
    assert await standing(here, job_id) == (QUEUED, "", 0)
    await another_is_lost(here, fleet, database)
    assert (await here.coordinator_stats())["workers_lost"] == 1


async def test_worker_that_said_goodbye_does_not_register_again(store: PostgresStore) -> None:
    """A worker that waits for the response to its goodbye does not request a new assignment."""
    here = PipelineHere(store, normal=1, high=0)
    here.lines = lines = LateGoodbye()
    async with here:
        session = await here.work().open(Introduction("w-1", frozenset({"echo"})))
        await happens(lambda: value(lines.under_way), lambda paths: "/coordinator/heartbeat" in paths)
        await session.close()
        assert (await here.coordinator_stats())["workers"] == []


class LateGoodbye(PatientLines):
    """Delays the response to a goodbye until all other calls of the worker are over or it has registered again."""

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
    """A worker keeps its job over a restart of the coordinator, and the new one notices when the worker dies."""
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
    """A worker whose connection drops reconnects at once and keeps its jobs."""
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
    """A worker reconnects to its coordinator while its heartbeat to the database is still waiting."""
    waits, never = asyncio.Event(), asyncio.Event()

    async def live(_worker: str, _session: str) -> None:
        waits.set()
        await never.wait()

    monkeypatch.setattr(store.leases, "live", live)
    async with here.worker("w-1", Ran().handlers()):
        await happens(lambda: connections(here), lambda count: count == 1)
        here.drop("/coordinator/presence")
        await happens(lambda: connections(here), lambda count: count == 0)
        await waits.wait()
        await happens(lambda: connections(here), lambda count: count == 1)


async def test_worker_that_dies_after_a_word_in_the_database_is_lost(store: PostgresStore) -> None:
    """A worker that dies after a heartbeat to the database is found lost by its coordinator before its lease ends."""
    here = PipelineHere(store, normal=1, high=0)
    here.heartbeat_ms, here.missed_max = 100, 1_000_000
    async with here:
        address = here.coordinator_address
        ask = AssignmentRequest(worker_id="w", session="s", types=["echo"])
        await here.lines.ask(address, "/coordinator/request-assignment", ask)
        job = await running(store)
        await happens(store.workers.all)
        begun = asyncio.Event()
        present = {"worker_id": "w", "session": "s"}
        held = asyncio.create_task(here.lines.hold(address, "/coordinator/presence", present, begun=begun.set))
        await begun.wait()
        await happens(lambda: connections(here))
        held.cancel()
        await happens(lambda: connections(here), lambda count: count == 0)
        await store.leases.live("w", "s")
        await happens(lambda: store.rows.get(job.job_id), lambda view: (view.state, view.losses) == (QUEUED, 1))


async def test_worker_that_speaks_only_in_the_database_is_not_lost(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is cut off from its coordinator is not lost while it sends its heartbeats to the database."""
    here = PipelineHere(store, normal=1, high=0)
    here.heartbeat_ms, here.missed_max = 3_000, 1_000_000
    here.lines = lines = CutLines()
    answers: list[bool] = []
    lose = store.workers.lose

    async def recorded(worker: str, session: str, silent_ms: int) -> bool:
        answers.append(await lose(worker, session, silent_ms))
        return answers[-1]

    monkeypatch.setattr(store.workers, "lose", recorded)
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
    """Connections that can be cut; calls that are under way continue."""

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
    """Returns when a worker that was killed now is removed: the grace of every earlier one is over by then."""
    before = await connections(here)
    killed = await worker_process(fleet, here, database, "another")
    await happens(lambda: connections(here), lambda count: count == before + 1)
    killed.kill()

    async def seats() -> list[str]:
        return [seat["worker_id"] for seat in (await here.coordinator_stats())["workers"]]

    await happens(seats, lambda workers: "another" not in workers)


async def value(read: T) -> T:
    """Wraps a value for `happens`."""
    return read


async def connections(here: PipelineHere) -> int:
    """The number of workers with an open connection."""
    return len(here.coordinator._presence)


async def standing(here: PipelineHere, job_id: str) -> tuple[int, str, int]:
    """The job's state, its worker, and its number of losses."""
    view: JobView = await here.store.rows.get(job_id)
    return view.state, view.worker, view.losses


PLACE = QueueAssignment("w", "s", WorkerKind(("echo",)), 1, ())


async def test_store_takes_the_leases_of_a_lost_session_back(store: PostgresStore) -> None:
    """The store takes back all leases of a lost session, each as a loss, and the last permitted loss ends the job."""
    await store.workers.save([PLACE])
    jobs = [
        await running(store),
        await running(store, Template("echo", max_losses=0)),
        await running(store, worker="v"),
    ]
    assert await store.workers.lose("w", "s", 0)
    views = [await store.rows.get(job.job_id) for job in jobs]
    assert [(view.state, view.losses) for view in views] == [(QUEUED, 1), (FAILED, 1), (RUNNING, 0)]
    assert await store.workers.all() == []
    assert (await store.leases.extend("w", [jobs[0].token], MINUTES_MS)).held == []


@pytest.mark.parametrize("session", ["s", "later"])
async def test_store_loses_no_worker_that_was_heard_of(store: PostgresStore, session: str) -> None:
    """A worker that sent a heartbeat itself, or has come back in another session, keeps its leases."""
    await store.workers.save([QueueAssignment("w", "s", WorkerKind(("echo",)), 1, (), heard_ms_ago=MINUTES_MS)])
    job = await running(store)
    if session == "s":
        await store.leases.live("w", "s")
    else:
        await store.leases.arrive("w", {job.token: job.job_id}, MINUTES_MS, session=session)
    assert not await store.workers.lose("w", "s", MINUTES_MS // 2)
    assert (await store.rows.get(job.job_id)).state == RUNNING


async def test_coordinator_that_writes_late_does_not_put_an_old_session_back(store: PostgresStore) -> None:
    """A late write by a worker's old coordinator does not replace the worker's newer session."""
    await store.workers.save([PLACE])
    await store.leases.arrive("w", {}, MINUTES_MS, session="later")
    await store.workers.save([QueueAssignment("w", "later", WorkerKind(("echo",)), 1, ("7001",))])
    await store.workers.save([PLACE])
    (place,) = await store.workers.all()
    assert (place.session, place.queues) == ("later", ("7001",))
    job = await running(store)
    assert not await store.workers.lose("w", "s", 0)
    assert await store.workers.lose("w", "later", 0)
    assert (await store.rows.get(job.job_id)).losses == 1


async def test_place_of_a_session_that_ended_elsewhere_makes_room(store: PostgresStore) -> None:
    """A coordinator replaces the stored session of a worker that has been silent for long with its newer session."""
    await store.workers.save([QueueAssignment("w", "s", WorkerKind(("echo",)), 1, (), heard_ms_ago=MINUTES_MS)])
    async with PipelineHere(store, normal=1, high=0) as here:
        ask = AssignmentRequest(worker_id="w", session="later", types=["echo"])
        await here.lines.ask(here.coordinator_address, "/coordinator/request-assignment", ask)
        await happens(store.workers.all, lambda places: [place.session for place in places] == ["later"])


async def test_place_stored_late_has_the_time_of_the_last_heartbeat(store: PostgresStore) -> None:
    """A place that is stored late has the time of the worker's last heartbeat, including those to the database."""
    await store.workers.save([QueueAssignment("w", "s", WorkerKind(("echo",)), 1, (), heard_ms_ago=MINUTES_MS)])
    (place,) = await store.workers.all()
    assert place.heard_ms_ago >= MINUTES_MS
    await store.leases.live("w", "s")
    await store.workers.save([QueueAssignment("w", "s", WorkerKind(("echo",)), 1, (), heard_ms_ago=MINUTES_MS)])
    (place,) = await store.workers.all()
    assert place.heard_ms_ago < MINUTES_MS


async def test_drain_that_was_asked_for_ends_with_its_session(store: PostgresStore) -> None:
    """A worker that starts a new session under the id of a draining one is not draining."""
    await store.workers.save([PLACE])
    await store.workers.ask_to_drain("w")
    await store.leases.arrive("w", {}, MINUTES_MS, session="later")
    (place,) = await store.workers.all()
    assert (place.session, place.is_draining) == ("later", False)


async def test_worker_that_hands_back_slowly_keeps_its_connection_meanwhile(here: PipelineHere, database: str) -> None:
    """A worker that stops in order is not lost while a slow database delays the return of its lease."""
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
    """The number of transactions that wait for a lock."""

    async def ask(connection: StoreConnection) -> int:
        (count,) = await (await connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")).fetchone() or (
            0,
        )
        return int(count)

    return await here.store.database.ask(ask)
