"""The leases that a worker requests, and its backlog of leases without a slot."""

import asyncio

import pytest

from holdfast.core.lifecycle import CANCELED
from holdfast.ports import Assignment, Directive
from holdfast.worker.config import WorkerConfig
from holdfast.worker.handlers import Handler, Mode
from holdfast.worker.prefetch import BACKLOG_MAX, AttemptPace
from holdfast.worker.runtime import Worker
from tests.unit.worker.backend import Backend, Session, working


def leases(*tokens: int) -> Directive:
    return Directive(leases=[Assignment(token, f"job-{token}", "t") for token in tokens])


async def for_ever(_: Assignment) -> bytes:
    await asyncio.Event().wait()
    return b""


async def at_once(_: Assignment) -> bytes:
    return b""


async def attached(worker: Worker, backend: Backend) -> Session:
    _, session = await backend.opened.get()
    await worker.attached.wait()
    return session


def test_nothing_is_hoarded_before_anything_is_known() -> None:
    """A worker that has run no jobs has no backlog."""
    assert AttemptPace().backlog(slots=8) == 0


@pytest.mark.parametrize(("each_s", "expected"), [(1e-6, BACKLOG_MAX), (0.01, 40), (0.05, 8), (0.051, 0), (10.0, 0)])
def test_backlog_is_worth_a_fixed_time(each_s: float, expected: int) -> None:
    """Short jobs are prefetched for a fixed time, and long ones are not prefetched."""
    pace = AttemptPace()
    pace.learn(each_s * 1_000, 1_000, now_s=1.0)
    assert pace.backlog(slots=8) == expected


def test_one_short_job_earns_no_backlog() -> None:
    """The backlog grows with the number of jobs that end, so a single short job earns almost none."""
    pace = AttemptPace()
    pace.learn(1e-6, 1, now_s=1.0)
    assert pace.backlog(slots=8) <= 2


def test_backlog_that_was_earned_ends_with_the_rate() -> None:
    """After a pause, the rate before it no longer counts."""
    pace = AttemptPace()
    pace.learn(0.001, 1_000, now_s=1.0)
    pace.learn(1e-6, 1, now_s=5.0)
    assert pace.backlog(slots=8) <= 2


def test_pace_follows_a_change() -> None:
    """A few reports of slow jobs end the backlog that fast jobs have earned."""
    pace = AttemptPace()
    pace.learn(1e-6 * 1_000, 1_000, now_s=1.0)
    for number in range(10):
        pace.learn(8.0, 8, now_s=2.0 + number)
    assert pace.backlog(slots=8) == 0


async def test_free_slots_are_offered_once() -> None:
    """The worker requests one lease for each free slot, and one more for each slot that becomes free."""
    async with working({"t": Handler(for_ever, Mode.ASYNC)}, slots=3) as (worker, backend):
        session = await attached(worker, backend)
        assert await session.wants.get() == 3
        session.tell(leases(1, 2))
        session.tell(Directive(cancels=[1]))
        assert (await session.rows.get()).token == 1
        assert await session.wants.get() == 1
        assert session.wants.empty()


async def test_lease_that_waits_longer_than_a_heartbeat_is_released() -> None:
    """A lease that waits too long is released unrun, and the estimated duration of jobs grows."""
    async with working({"t": Handler(for_ever, Mode.ASYNC)}, slots=1, heartbeat_ms=20) as (worker, backend):
        session = await attached(worker, backend)
        session.tell(leases(1, 2, 3))
        assert await session.released.get() == [2, 3]
        assert worker.tally.released == 2
        assert worker._slots.pace.backlog(slots=1) == 0 or worker._slots.pace.average_s >= 0.02


async def test_stop_hands_the_backlog_back_at_once() -> None:
    """A draining worker releases its backlog at once."""
    async with working({"t": Handler(for_ever, Mode.ASYNC)}, slots=1, heartbeat_ms=60_000) as (worker, backend):
        session = await attached(worker, backend)
        session.tell(leases(1, 2))
        while worker._slots.backlog != 1:  # noqa: ASYNC110 - the worker has no event for it
            await asyncio.sleep(0)
        worker.stop()
        assert await session.released.get() == [2]


async def test_asked_to_drain_is_like_the_first_stop() -> None:
    """A worker that the backend asks to drain, even repeatedly, finishes its running jobs and ends."""
    ending = asyncio.Event()

    async def until_told(_: Assignment) -> bytes:
        await ending.wait()
        return b"finished"

    backend = Backend(1_000)
    worker = Worker(backend, {"t": Handler(until_told, Mode.ASYNC)}, WorkerConfig("w"))
    running = asyncio.create_task(worker.run())
    session = await attached(worker, backend)
    session.tell(leases(1))
    session.tell(Directive(is_drain_asked=True))
    session.tell(Directive(is_drain_asked=True))
    await session.drained.wait()
    ending.set()
    assert (await session.rows.get()).output == b"finished"
    await running
    assert not worker.is_recycling


async def test_canceled_backlog_is_reported_unrun() -> None:
    """A waiting job that is canceled is reported without a run."""
    async with working({"t": Handler(for_ever, Mode.ASYNC)}, slots=1, heartbeat_ms=60_000) as (worker, backend):
        session = await attached(worker, backend)
        session.tell(leases(1, 2))
        session.tell(Directive(cancels=[2]))
        row = await session.rows.get()
        assert (row.token, row.state) == (2, CANCELED)


async def test_worker_that_is_old_ends_to_be_replaced() -> None:
    """After `max_jobs` jobs the worker ends as recycling, and a stop takes that back."""
    backend = Backend(1_000)
    worker = Worker(backend, {"t": Handler(at_once, Mode.ASYNC)}, WorkerConfig("w", max_jobs=2, is_replaceable=True))
    running = asyncio.create_task(worker.run())
    session = await attached(worker, backend)
    session.tell(leases(1, 2))
    await running
    assert worker.is_recycling
    worker.stop()
    assert not worker.is_recycling


async def test_worker_in_somebodys_program_goes_on_however_old() -> None:
    """A worker that is not replaceable continues after `max_jobs` jobs."""
    backend = Backend(1_000)
    worker = Worker(backend, {"t": Handler(at_once, Mode.ASYNC)}, WorkerConfig("w", max_jobs=1))
    running = asyncio.create_task(worker.run())
    session = await attached(worker, backend)
    for token in (1, 2, 3):
        session.tell(leases(token))
        assert (await session.rows.get()).token == token
    worker.stop()
    await running


async def test_drain_without_jobs_ends_at_once() -> None:
    """A worker without jobs ends at once when it drains."""
    async with working({"t": Handler(at_once, Mode.ASYNC)}) as (worker, backend):
        session = await attached(worker, backend)
        worker.stop()
        await session.drained.wait()
