"""Schedules, which make jobs by time."""

import pytest

from holdfast.core.capabilities import Capability
from holdfast.core.lifecycle import DONE, QUEUED
from holdfast.errors import HoldfastError, InvalidArgumentError, NotFoundError
from holdfast.ports import ScheduleSpec
from holdfast.testing.conformance.harness import Control, needs
from holdfast.testing.conformance.workplace import Workplace

HOUR_MS = 3_600_000


def spec(place: Workplace, **fields: object) -> ScheduleSpec:
    """A schedule with a name of this test; by default it does not tick while the test runs."""
    fields = fields or {"cron": "0 0 1 1 *"}
    return ScheduleSpec(place.name("schedule"), place.template(), b"planned", **fields)  # type: ignore[arg-type]


class TestScheduling:
    """Schedules are stored, tick, and can be managed."""

    @needs(Capability.SCHEDULES)
    async def test_schedule_is_there_as_it_was_set(self, place: Workplace) -> None:
        """A schedule is returned with everything that was set, and with its next tick."""
        wanted = spec(
            place,
            cron="*/5 9-17 29 feb *",  # hardly ever ticks: a tick would change the schedule
            timezone="Europe/Paris",
            catch_up="all",
            catch_up_window_ms=HOUR_MS,
            overlap="skip",
            jitter_ms=1_000,
            labels=(("team", "night"),),
        )
        view = await place.schedules.set(wanted)
        assert view.spec == wanted
        assert view.next_ms > view.created_ms
        assert await place.schedules.get(wanted.name) == view
        assert view in await place.schedules.all()

    @needs(Capability.SCHEDULES)
    async def test_schedule_can_be_set_again(self, place: Workplace) -> None:
        """Setting the same schedule again changes nothing, and setting another one replaces it."""
        first = await place.schedules.set(spec(place))
        assert await place.schedules.set(spec(place)) == first
        other = await place.schedules.set(spec(place, every_ms=HOUR_MS))
        assert (other.spec.every_ms, other.spec.cron) == (HOUR_MS, "")

    @needs(Capability.SCHEDULES)
    async def test_tick_makes_a_job_that_runs(self, place: Workplace) -> None:
        """A schedule with an interval of a second soon makes a job, with its payload and with headers that name it."""
        wanted = spec(place, every_ms=1_000)
        await place.schedules.set(wanted)
        hand = await place.worker()
        (lease,) = await hand.take()
        await place.schedules.delete(wanted.name)
        assert (lease.payload, lease.headers["holdfast-schedule"]) == (b"planned", wanted.name)
        assert lease.headers["holdfast-scheduled-for"].endswith("Z")
        await hand.done(lease)
        assert (await place.jobs.get(lease.job_id)).state == DONE

    @needs(Capability.SCHEDULES)
    async def test_trigger_makes_a_job_now(self, place: Workplace) -> None:
        """A trigger makes a job at once, and does not change the next tick."""
        before = await place.schedules.set(spec(place))
        job_id = await place.schedules.trigger(before.spec.name)
        assert (await place.jobs.get(job_id)).state == QUEUED
        after = await place.schedules.get(before.spec.name)
        assert (after.next_ms, after.last_job_id, after.fired) == (before.next_ms, job_id, 1)

    @needs(Capability.SCHEDULES)
    async def test_paused_schedule_says_so_and_goes_on(self, place: Workplace) -> None:
        """A schedule can be paused and resumed, and both can be repeated."""
        name = (await place.schedules.set(spec(place))).spec.name
        for is_paused in (True, True, False, False):
            assert (await place.schedules.pause(name, is_paused=is_paused)).is_paused == is_paused

    @needs(Capability.SCHEDULES)
    async def test_deleted_schedule_is_gone(self, place: Workplace) -> None:
        """A deleted schedule is not found by any call."""
        name = (await place.schedules.set(spec(place))).spec.name
        await place.schedules.delete(name)
        for call in (place.schedules.get, place.schedules.delete, place.schedules.trigger):
            with pytest.raises(NotFoundError):
                await call(name)
        assert name not in [view.spec.name for view in await place.schedules.all()]

    @needs(Capability.SCHEDULES)
    async def test_preview_tells_ticks_around_a_clock_change(self, place: Workplace) -> None:
        """A preview of half past two in Paris has the right ticks around the clock change, and makes no schedule."""
        wanted = spec(place, cron="30 2 * * *", timezone="Europe/Paris")
        after_ms = 1_774_652_400_000  # 2026-03-28T00:00 in Paris
        ticks = await place.schedules.preview(wanted, after_ms, 3)
        assert [(tick - after_ms) / HOUR_MS for tick in ticks] == [2.5, 26.0, 49.5]
        with pytest.raises(NotFoundError):
            await place.schedules.get(wanted.name)

    @needs(Capability.SCHEDULES)
    @pytest.mark.parametrize(
        "fields",
        [{"cron": "not cron"}, {"every_ms": 1}, {"cron": "* * * * *", "timezone": "Nowhere"}, {"cron": ""}],
    )
    async def test_schedule_that_cannot_be_right_is_refused(self, place: Workplace, fields: dict[str, object]) -> None:
        """An invalid schedule is refused, and is not stored."""
        with pytest.raises(InvalidArgumentError):
            await place.schedules.set(spec(place, **fields))
        with pytest.raises(HoldfastError):
            await place.schedules.get(place.name("schedule"))

    @needs(Capability.SCHEDULES, Control.RESTART)
    async def test_schedules_are_there_after_a_restart(self, place: Workplace) -> None:
        """A schedule is unchanged after a restart, including its counters and its next tick."""
        before = await place.schedules.set(spec(place))
        await place.schedules.trigger(before.spec.name)
        kept = await place.schedules.get(before.spec.name)
        await place.harness.restart()
        assert await place.schedules.get(before.spec.name) == kept
