"""Scheduling: jobs that are made by time."""

import pytest

from holdfast.core.capabilities import Capability
from holdfast.core.lifecycle import DONE, QUEUED
from holdfast.errors import HoldfastError, InvalidArgumentError, NotFoundError
from holdfast.ports import ScheduleSpec
from holdfast.testing.conformance.harness import Control, needs
from holdfast.testing.conformance.workplace import Workplace

HOUR_MS = 3_600_000


def spec(place: Workplace, **fields: object) -> ScheduleSpec:
    """A schedule of this test's own, that will not tick by itself while the test runs."""
    fields = fields or {"cron": "0 0 1 1 *"}
    return ScheduleSpec(place.name("schedule"), place.template(), b"planned", **fields)  # type: ignore[arg-type]


class TestScheduling:
    """Schedules are kept, tick, and can be looked after."""

    @needs(Capability.SCHEDULES)
    async def test_schedule_is_there_as_it_was_set(self, place: Workplace) -> None:
        """With everything that was said, and with its next tick."""
        wanted = spec(
            place,
            cron="*/5 9-17 29 feb *",  # not while this runs: each tick would change it
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
        """The same changes nothing, another one replaces it."""
        first = await place.schedules.set(spec(place))
        assert await place.schedules.set(spec(place)) == first
        other = await place.schedules.set(spec(place, every_ms=HOUR_MS))
        assert (other.spec.every_ms, other.spec.cron) == (HOUR_MS, "")

    @needs(Capability.SCHEDULES)
    async def test_tick_makes_a_job_that_runs(self, place: Workplace) -> None:
        """An interval of a second soon has its first job, which is told its schedule and carries its payload."""
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
        """Beside the plan, which stays."""
        before = await place.schedules.set(spec(place))
        job_id = await place.schedules.trigger(before.spec.name)
        assert (await place.jobs.get(job_id)).state == QUEUED
        after = await place.schedules.get(before.spec.name)
        assert (after.next_ms, after.last_job_id, after.fired) == (before.next_ms, job_id, 1)

    @needs(Capability.SCHEDULES)
    async def test_paused_schedule_says_so_and_goes_on(self, place: Workplace) -> None:
        """Both can be repeated."""
        name = (await place.schedules.set(spec(place))).spec.name
        for is_paused in (True, True, False, False):
            assert (await place.schedules.pause(name, is_paused=is_paused)).is_paused == is_paused

    @needs(Capability.SCHEDULES)
    async def test_deleted_schedule_is_gone(self, place: Workplace) -> None:
        """Whatever is asked of it then finds nothing."""
        name = (await place.schedules.set(spec(place))).spec.name
        await place.schedules.delete(name)
        for call in (place.schedules.get, place.schedules.delete, place.schedules.trigger):
            with pytest.raises(NotFoundError):
                await call(name)
        assert name not in [view.spec.name for view in await place.schedules.all()]

    @needs(Capability.SCHEDULES)
    async def test_preview_tells_ticks_around_a_clock_change(self, place: Workplace) -> None:
        """Without making anything: half past two in Paris, over the last Sunday of March."""
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
        """And is not there."""
        with pytest.raises(InvalidArgumentError):
            await place.schedules.set(spec(place, **fields))
        with pytest.raises(HoldfastError):
            await place.schedules.get(place.name("schedule"))

    @needs(Capability.SCHEDULES, Control.RESTART)
    async def test_schedules_are_there_after_a_restart(self, place: Workplace) -> None:
        """With what they have done, and with their next tick."""
        before = await place.schedules.set(spec(place))
        await place.schedules.trigger(before.spec.name)
        kept = await place.schedules.get(before.spec.name)
        await place.harness.restart()
        assert await place.schedules.get(before.spec.name) == kept
