"""Schedules in a real PostgreSQL, with a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

import psycopg
import pytest

from holdfast import limits
from holdfast.core.lifecycle import CANCELED, QUEUED, RUNNING
from holdfast.core.model import QueueMode, ScheduleSpec, Template
from holdfast.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    UnavailableError,
)
from holdfast.topologies.pipeline.postgres.database import PostgresStore
from holdfast.topologies.pipeline.postgres.schedules import TAKEN
from tests.integration.pipeline.turned_clock import DAY, HOUR, MINUTE, SECOND, START, Clockwork, TurnedClock, told

WEEK = 7 * DAY


@pytest.fixture
async def clockwork(store: PostgresStore, database: str) -> AsyncIterator[Clockwork]:
    """Schedules over an empty database, at the beginning of 2026."""
    clock = TurnedClock(database)
    yield Clockwork(store, clock)
    clock.close()


async def test_cron_fires_in_the_minute_that_it_names(clockwork: Clockwork) -> None:
    """Each tick creates one job whose headers name its schedule and tick, also if the tick fires late."""
    view = await clockwork.set(cron="30 9", payload=b"now", labels=(("team", "night"),))
    assert view.next_ms == START + 9 * HOUR + 30 * MINUTE
    assert await clockwork.advance(9 * HOUR) == []
    assert await clockwork.schedules.next_due_ms() == 30 * MINUTE
    assert await clockwork.advance(30 * MINUTE + 42 * SECOND) == ["fired"]
    (job,) = await clockwork.jobs()
    assert (told(job), await clockwork.store.rows.payload(job.id)) == ("2026-01-01T09:30:00Z", b"now")
    assert job.extra is not None
    assert (dict(job.extra.headers)["holdfast-schedule"], job.extra.labels) == ("s", (("team", "night"),))
    view = await clockwork.schedules.get("s")
    assert (view.fired, view.last_job_id, view.last_tick_ms) == (1, job.id, START + 9 * HOUR + 30 * MINUTE)
    assert view.next_ms == view.last_tick_ms + DAY


async def test_jitter_makes_the_job_due_later(clockwork: Clockwork) -> None:
    """With jitter, a tick creates its job at once, and the job is due within the jitter."""
    await clockwork.set(every_ms=MINUTE, jitter_ms=30_000)
    await clockwork.advance(MINUTE)
    (job,) = await clockwork.jobs()
    assert START + MINUTE <= job.not_before_ms <= START + MINUTE + 30_000


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        ("2026-03-28", ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]),
        ("2026-10-24", ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
    ],
)
async def test_clock_change_fires_once(clockwork: Clockwork, day: str, expected: list[str]) -> None:
    """A cron time that the clock change skips or repeats fires once on that day."""
    clockwork.clock.turn(int(datetime.fromisoformat(f"{day}T00:00:00Z").timestamp() * 1_000) - START)
    await clockwork.set(cron="30 2 * * *", timezone="Europe/Paris")
    for _ in range(6 * 24):
        await clockwork.advance(30 * MINUTE)
    assert [told(job) for job in await clockwork.jobs()] == expected


async def test_one_shot_fires_once_even_when_late(clockwork: Clockwork) -> None:
    """A one-shot schedule fires once, also a week late, and setting it again does not repeat it."""
    await clockwork.set(at_ms=START + HOUR)
    assert await clockwork.advance(WEEK) == ["fired"]
    assert (await clockwork.schedules.get("s")).next_ms == 0
    await clockwork.set(at_ms=START + HOUR)
    await clockwork.set(at_ms=START + HOUR, payload=b"other")
    assert await clockwork.advance(DAY) == []
    assert await clockwork.schedules.next_due_ms() is None


@pytest.mark.parametrize(
    ("catch_up", "fired", "missed"), [("none", 0, 7 * 24), ("latest", 1, 7 * 24 - 1), ("all", 24, 7 * 24 - 24)]
)
async def test_week_offline(clockwork: Clockwork, catch_up: str, fired: int, missed: int) -> None:
    """After a week offline, no missed tick fires, or the latest, or all within the window, as `catch_up` says."""
    await clockwork.set(cron="0 * * * *", catch_up=catch_up, catch_up_window_ms=DAY)
    await clockwork.advance(WEEK + 30 * MINUTE)
    view = await clockwork.schedules.get("s")
    assert (view.fired, view.missed, len(await clockwork.jobs())) == (fired, missed, fired)
    assert view.next_ms == START + WEEK + HOUR


async def test_skip_makes_no_job_while_one_waits(clockwork: Clockwork) -> None:
    """With overlap `skip`, a tick is skipped and counted while a job is unfinished, and the next one fires."""
    await clockwork.set(every_ms=MINUTE, overlap="skip")
    assert await clockwork.advance(MINUTE) == ["fired"]
    assert await clockwork.advance(MINUTE) == ["skipped"]
    (job,) = await clockwork.jobs()
    await clockwork.store.rows.cancel(job.id, "enough")
    assert await clockwork.advance(MINUTE) == ["fired"]
    view = await clockwork.schedules.get("s")
    assert (view.fired, view.skipped) == (2, 1)


async def test_cancel_running_cancels_the_job_before(clockwork: Clockwork) -> None:
    """With overlap `cancel_running`, a tick cancels the previous job or, if it is running, requests its cancel."""
    await clockwork.set(every_ms=MINUTE, overlap="cancel_running")
    await clockwork.advance(MINUTE)
    await clockwork.advance(MINUTE)
    first, second = await clockwork.jobs()
    assert (first.state, second.state) == (CANCELED, QUEUED)
    assert (await clockwork.store.rows.result(first.id)).summary == "its schedule s made the next job"
    await clockwork.store.leases.start("w", [second.id], HOUR)
    await clockwork.advance(MINUTE)
    _, second, third = await clockwork.jobs()
    assert (second.state, second.cancel_requested, third.state) == (RUNNING, True, QUEUED)


async def test_draining_queue_skips_ticks_and_refuses_triggers(clockwork: Clockwork) -> None:
    """A draining queue skips the ticks of a schedule and refuses its triggers."""
    await clockwork.set(every_ms=MINUTE)
    await clockwork.store.queues.set_mode("default", QueueMode.DRAINING, "moving")
    assert await clockwork.advance(MINUTE) == ["skipped"]
    with pytest.raises(FailedPreconditionError, match="draining"):
        await clockwork.schedules.trigger("s")
    assert await clockwork.jobs() == []


async def test_ticks_during_a_pause_do_not_fire(clockwork: Clockwork) -> None:
    """Ticks during a pause do not fire, and the schedule continues with the next tick after it."""
    await clockwork.set(every_ms=MINUTE, catch_up="all")
    await clockwork.schedules.pause("s", is_paused=True)
    assert await clockwork.advance(10 * MINUTE + SECOND) == []
    assert await clockwork.schedules.next_due_ms() is None
    view = await clockwork.schedules.pause("s", is_paused=False)
    assert (view.next_ms, view.missed) == (START + 11 * MINUTE, 0)


async def test_replaced_schedule_keeps_its_counts(clockwork: Clockwork) -> None:
    """A schedule that is replaced gets a new next tick and keeps its counts."""
    await clockwork.set(every_ms=MINUTE)
    await clockwork.advance(MINUTE + SECOND)
    view = await clockwork.set(every_ms=HOUR)
    assert (view.fired, view.created_ms, view.next_ms) == (1, START + MINUTE + SECOND, START + MINUTE + SECOND + HOUR)
    clockwork.clock.turn(SECOND)
    assert await clockwork.set(every_ms=HOUR) == view


async def test_schedule_made_anew_has_ticks_of_its_own(clockwork: Clockwork) -> None:
    """A schedule that is created again after a delete fires, also for the same second as the deleted one."""
    await clockwork.set(at_ms=START)
    assert await clockwork.fire() == ["fired"]
    await clockwork.schedules.delete("s")
    await clockwork.set(at_ms=START)
    assert await clockwork.fire() == ["fired"]
    assert len(await clockwork.jobs()) == 2


async def test_tick_in_the_book_cannot_fire(clockwork: Clockwork, database: str) -> None:
    """A tick that is already recorded creates no second job, and the schedule continues."""
    await clockwork.set(every_ms=MINUTE)
    await clockwork.advance(MINUTE)
    async with await psycopg.AsyncConnection.connect(database) as other:
        await other.execute("UPDATE holdfast.schedules SET next_ms = last_tick_ms")
    assert await clockwork.fire() == [TAKEN]
    assert await clockwork.advance(MINUTE) == ["fired"]
    view = await clockwork.schedules.get("s")
    assert (view.fired, len(await clockwork.jobs())) == (2, 2)


async def test_same_tick_from_many_connections_fires_once(clockwork: Clockwork) -> None:
    """A tick that several connections fire at the same time creates one job."""
    await clockwork.set(every_ms=MINUTE)
    leadership = await clockwork.schedules.lead("me", DAY)
    assert leadership is not None
    for _ in range(5):
        clockwork.clock.turn(MINUTE)
        outcomes = await asyncio.gather(*(clockwork.schedules.tick(leadership) for _ in range(8)))
        assert sorted(outcomes) == [""] * 7 + ["fired"]
    assert len({told(job) for job in await clockwork.jobs()}) == len(await clockwork.jobs()) == 5


async def test_killed_connection_loses_no_tick(clockwork: Clockwork, database: str) -> None:
    """A tick whose connection is killed before the commit changes nothing and is still due."""
    await clockwork.set(every_ms=MINUTE)
    leadership = await clockwork.schedules.lead("me", DAY)
    assert leadership is not None
    clockwork.clock.turn(MINUTE)
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as other:
        async with other.transaction():
            # The tick blocks after it has created its job.
            await other.execute("LOCK TABLE holdfast.tallies IN ACCESS EXCLUSIVE MODE")
            ticking = asyncio.create_task(clockwork.schedules.tick(leadership))
            await _kill_who_waits(other)
        with pytest.raises(UnavailableError):
            await ticking
    assert await clockwork.jobs() == []
    assert await clockwork.fire() == ["fired"]
    assert [told(job) for job in await clockwork.jobs()] == ["2026-01-01T00:01:00Z"]


async def _kill_who_waits(connection: psycopg.AsyncConnection) -> None:
    """Terminates the connection that waits for this connection's lock, as soon as there is one."""
    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    while (row := await (await connection.execute(waiting)).fetchone()) is None:  # noqa: ASYNC110 - state of the database
        await asyncio.sleep(0)
    await connection.execute("SELECT pg_terminate_backend(%s)", row)


async def test_trigger_makes_a_job_beside_the_plan(clockwork: Clockwork) -> None:
    """Every trigger creates a job, also while the schedule is paused or its last job is unfinished."""
    before = await clockwork.set(every_ms=MINUTE, overlap="skip")
    await clockwork.schedules.pause("s", is_paused=True)
    made = [await clockwork.schedules.trigger("s") for _ in range(2)]
    after = await clockwork.schedules.get("s")
    assert (after.fired, after.last_job_id, after.next_ms, after.last_tick_ms) == (2, made[1], before.next_ms, 0)
    assert {job.id for job in await clockwork.jobs()} == set(made)


async def test_ticks_are_forgotten_after_a_day(clockwork: Clockwork, database: str) -> None:
    """Recorded ticks are deleted after some time."""
    await clockwork.set(every_ms=HOUR)
    for _ in range(24 * 5):
        await clockwork.advance(HOUR)
    async with await psycopg.AsyncConnection.connect(database) as other:
        row = await (await other.execute("SELECT count(*) FROM holdfast.ticks")).fetchone()
    assert row is not None
    assert 24 <= row[0] < 24 * 4


async def test_unknown_schedule_is_not_found(clockwork: Clockwork) -> None:
    """A call for an unknown schedule is NOT_FOUND, also with a name that the database cannot store."""
    plans = clockwork.schedules
    for name in ("s", "no\0name", "\ud800", "x" * 1_000):
        for call in (plans.get, plans.delete, plans.trigger):
            with pytest.raises(NotFoundError):
                await call(name)
        with pytest.raises(NotFoundError):
            await plans.pause(name, is_paused=True)
    with pytest.raises(InvalidArgumentError):
        await plans.set(ScheduleSpec("no\0name", Template("work"), every_ms=MINUTE))
    assert await plans.all() == []


async def test_schedules_are_bounded(clockwork: Clockwork, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule above the limit is refused, also among concurrent calls, and an existing one can be replaced."""
    monkeypatch.setattr(limits, "SCHEDULES_MAX", 3)
    specs = [ScheduleSpec(f"s{number}", Template("work"), every_ms=MINUTE) for number in range(6)]
    answers = await asyncio.gather(*map(clockwork.schedules.set, specs), return_exceptions=True)
    assert sum(isinstance(answer, ResourceExhaustedError) for answer in answers) == 3
    kept = await clockwork.schedules.all()
    assert [view.spec.name for view in kept] == sorted(view.spec.name for view in kept)
    assert len(kept) == 3
    assert (await clockwork.schedules.set(ScheduleSpec(kept[0].spec.name, Template("work"), every_ms=HOUR))).fired == 0


async def test_preview_goes_by_the_database(clockwork: Clockwork) -> None:
    """A preview starts at the database's time and creates nothing."""
    schedules = clockwork.schedules
    spec = ScheduleSpec("s", Template("work"), cron="*/5 *")
    assert await schedules.preview(spec, 0, 3) == [START + number * 5 * MINUTE for number in (1, 2, 3)]
    assert await schedules.all() == []
    with pytest.raises(InvalidArgumentError):
        await schedules.preview(spec, 0, 0)
    with pytest.raises(InvalidArgumentError):
        await schedules.preview(ScheduleSpec("s", Template("work"), cron="never"), 0, 1)
