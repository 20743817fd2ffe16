"""The times of the sweep, and the jobs that it must not repair."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.core.lifecycle import QUEUED, RUNNING
from holdfast.core.model import Now
from holdfast.errors import UnavailableError
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.topologies.microservices.services.queue_sweeper import SETTLED_MS, SweepTimer
from tests.integration.microservices_world import Fault, World, world

HEARTBEAT_MS = 1_000


def at(served_ms: int) -> Now:
    return Now(0, served_ms)


@pytest.fixture
async def here() -> AsyncIterator[World]:
    """Three owners and a coordinator."""
    async with world() as made:
        yield made


def test_first_go_is_at_once() -> None:
    """The first sweep after a start is due at once."""
    assert SweepTimer(HEARTBEAT_MS).is_due(at(0))


@pytest.mark.parametrize(("is_hinted", "due_ms"), [(False, 5_000), (True, 1_000)])
def test_next_go_has_its_time(is_hinted: bool, due_ms: int) -> None:  # noqa: FBT001
    """Sweeps are five heartbeats apart, or one heartbeat after a dequeue found nothing."""
    timer = SweepTimer(HEARTBEAT_MS)
    timer.hint()
    timer.went(at(0), repaired=False)
    if is_hinted:
        timer.hint()
    assert [timer.is_due(at(due_ms - 1)), timer.is_due(at(due_ms))] == [False, True]


def test_repair_goes_on_at_once_until_nothing_is_left() -> None:
    """While a sweep repairs something, the next one follows at once."""
    timer = SweepTimer(HEARTBEAT_MS)
    timer.went(at(0), repaired=True)
    assert timer.is_due(at(0))
    timer.went(at(0), repaired=False)
    assert not timer.is_due(at(0))


async def test_job_that_is_dequeued_beside_the_sweep_is_no_anomaly(here: World) -> None:
    """A job that is dequeued between the listing and its check is not logged and not enqueued again."""
    job_id = await here.submit()
    await here.pass_time(SETTLED_MS)
    handed_out = []

    async def hand_out(method: str, _request: object) -> None:
        if method == "EnqueueJob":
            here.faults.before = None
            handed_out.append((await here.take()).job_id)

    here.faults.before = hand_out
    await here.pass_time(5_250)
    assert handed_out == [job_id]
    assert (await here.state(job_id), job_id in here.line) == (RUNNING, False)
    assert here.logged("anomaly") == []


async def test_dequeue_whose_answer_is_on_its_way_is_no_anomaly(here: World) -> None:
    """The sweep waits for replies of earlier dequeues before it treats a job as missing."""
    job_id = await here.submit()
    await here.pass_time(SETTLED_MS + 250)
    dequeued, enqueued, gate = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hold(method: str, _answer: object) -> None:
        if method == "DequeueJob":
            dequeued.set()
            await gate.wait()
        if method == "EnqueueJob":
            enqueued.set()

    here.faults.after = hold
    fetching = asyncio.create_task(here.fetch())
    await dequeued.wait()
    sweeping = asyncio.create_task(here.coordinator._sweeper.go())
    await enqueued.wait()
    for _ in range(10):
        await here.state(job_id)
    gate.set()
    assert ((await fetching).job_id, await sweeping) == (job_id, False)
    assert job_id not in here.line
    assert here.logged("anomaly") == []


async def test_job_on_its_way_back_is_no_anomaly(here: World) -> None:
    """A job that is QUEUED again but not enqueued yet is left to the call that returns it."""
    job_id = await here.submit()
    work = await here.take()
    await here.pass_time(SETTLED_MS, work)
    seen = []

    async def sweep_meanwhile(method: str, _request: object) -> None:
        if method == "EnqueueJob":
            here.faults.before = None
            repaired = await here.coordinator._sweeper.go()
            seen.append((await here.state(job_id), repaired, job_id in here.line))

    here.faults.before = sweep_meanwhile
    await here.beat(released=(work,))
    assert seen == [(QUEUED, False, False)]
    assert job_id in here.line
    assert here.logged("anomaly") == []


async def test_young_and_delayed_jobs_are_left_alone(here: World) -> None:
    """The sweep does not enqueue jobs that are new or not due."""
    young, delayed = await here.submit(), await here.submit(delay_ms=60_000)
    for job_id in (young, delayed):
        await here.queue.RemoveJobIfPresent(pb.RemoveJobIfPresentRequest(job_id=job_id))
    await here.pass_time(SETTLED_MS - 250)
    assert (young in here.line, delayed in here.line) == (False, False)
    await here.pass_time(6_000)
    assert (young in here.line, delayed in here.line) == (True, False)
    await here.pass_time(60_000)
    assert delayed in here.line


async def test_walk_goes_on_where_it_stopped(here: World) -> None:
    """A queue of more than one page is rebuilt completely, page after page, in its order."""
    ids = [await here.submit() for _ in range(450)]
    await here.pass_time(SETTLED_MS)
    for job_id in ids:
        await here.queue.RemoveJobIfPresent(pb.RemoveJobIfPresentRequest(job_id=job_id))
    await here.fetch()
    await here.pass_time(2_000)
    assert [(await here.take()).job_id for _ in ids] == ids


async def test_lost_answer_of_a_dequeue_makes_the_walk_begin_anew(here: World) -> None:
    """If the reply of a dequeue is lost, the walk starts over and finds the job, even if it had passed it."""
    ids = []
    for _ in range(250):
        ids.append(await here.submit())
        here.clock.advance(0.001)  # a listing orders jobs of one millisecond by their ids
    await here.pass_time(SETTLED_MS + 250)
    await here.fetch("idle", "mail")
    await here.pass_time(1_000)
    here.faults.rule = lambda _number, method, _request: Fault.LOST_AFTER if method == "DequeueJob" else None
    with pytest.raises(UnavailableError):
        await here.fetch()
    assert ids[0] not in here.line
    await here.pass_time(1_000)
    assert ids[0] in here.line
