"""The rules of ticks, as functions of a schedule and plain facts."""

from datetime import UTC, datetime

import pytest

from holdfast.core.cron import utc_text
from holdfast.core.model import Schedule, ScheduleSpec, Template
from holdfast.core.ticks import (
    LATE_MS,
    DueTick,
    due_tick,
    is_canceling,
    is_planned,
    is_skipped,
    job_of_tick,
    job_of_trigger,
    planned,
    resumed,
)

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1_000)


def spec(**fields: object) -> ScheduleSpec:
    return ScheduleSpec("s", Template("work"), **(fields or {"every_ms": HOUR}))  # type: ignore[arg-type]


def schedule(**fields: object) -> Schedule:
    """One that was made at the start, and has not ticked yet."""
    wanted = spec(**fields)
    return Schedule(wanted, START, planned(None, wanted, START))


def test_tick_in_time_comes_up_by_itself() -> None:
    """One that is late by no more than a minute is fired as if it were not, and the next one follows it."""
    for late_ms in (0, LATE_MS):
        assert due_tick(schedule(), START + HOUR + late_ms) == DueTick(START + HOUR, START + 2 * HOUR)


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [
        ("none", DueTick(START + HOUR, START + 10 * HOUR, 9, is_missed=True)),
        ("latest", DueTick(START + 9 * HOUR, START + 10 * HOUR, 8)),
        ("all", DueTick(START + 7 * HOUR, START + 8 * HOUR, 6)),
    ],
)
def test_late_ticks_come_up_by_the_rule(catch_up: str, expected: DueTick) -> None:
    """None of them, the last of them, or the first one within the window; the others are counted."""
    one = schedule(every_ms=HOUR, catch_up=catch_up, catch_up_window_ms=3 * HOUR)
    assert due_tick(one, START + 9 * HOUR + 30 * MINUTE) == expected


def test_one_shot_comes_late_rather_than_never() -> None:
    """It has no other tick that could stand in for it, and none follows it."""
    assert due_tick(schedule(at_ms=START + HOUR), START + 365 * DAY) == DueTick(START + HOUR, 0)


def test_passed_over_ticks_leave_those_that_are_not_late() -> None:
    """The next one after an absence may be due already."""
    due = due_tick(schedule(every_ms=20_000), START + 10 * MINUTE)
    assert due == DueTick(START + 20_000, START + 9 * MINUTE, 26, is_missed=True)


def test_schedule_set_again_keeps_its_plan() -> None:
    """Unless something else is said, or an interval has come to its end."""
    one = schedule()
    assert is_planned(one, spec())
    assert not is_planned(one, spec(every_ms=DAY))
    assert not is_planned(None, spec())
    one.next_ms = 0
    assert not is_planned(one, spec())


def test_one_shot_that_has_been_does_not_come_again() -> None:
    """Replaced by another one at the same instant, it has no tick; at a later one it has."""
    one = schedule(at_ms=START + HOUR)
    one.last_tick_ms = START + HOUR
    assert planned(one, spec(at_ms=START + HOUR, payload=b"other"), START + DAY) == 0
    assert planned(one, spec(at_ms=START + 2 * HOUR), START + DAY) == START + 2 * HOUR


def test_pause_is_passed_over_whole() -> None:
    """What fell into it does not come, what comes after it does."""
    assert resumed(schedule(), START + 5 * HOUR) == START + 6 * HOUR
    assert resumed(schedule(), START + MINUTE) == START + HOUR
    assert resumed(schedule(at_ms=START + HOUR), START + 2 * HOUR) == 0


@pytest.mark.parametrize("overlap", ["allow", "skip", "cancel_running"])
def test_overlap_matters_while_the_last_job_has_not_ended(overlap: str) -> None:
    """Only `skip` makes no job, only `cancel_running` ends one, and a draining queue takes none at all."""
    one = spec(every_ms=HOUR, overlap=overlap)
    assert is_skipped(one, is_busy=True, is_draining=False) == (overlap == "skip")
    assert is_canceling(one, is_busy=True) == (overlap == "cancel_running")
    assert not is_skipped(one, is_busy=False, is_draining=False)
    assert not is_canceling(one, is_busy=False)
    assert is_skipped(one, is_busy=False, is_draining=True)


def test_job_knows_its_tick() -> None:
    """Jitter delays the job and not what it is told; a trigger's tick is the second in which it came."""
    one = spec(every_ms=HOUR, jitter_ms=MINUTE, payload=b"p", labels=(("a", "b"),))
    job = job_of_tick(one, START, "id")
    assert START <= job.not_before_ms <= START + MINUTE
    assert job.extra is not None
    headers = dict(job.extra.headers)
    assert (job.id, job.payload, job.extra.labels) == ("id", b"p", (("a", "b"),))
    assert headers == {"holdfast-schedule": "s", "holdfast-scheduled-for": utc_text(START)}
    triggered = job_of_trigger(one, START + 1_999, "id")
    assert triggered.extra is not None
    assert triggered.not_before_ms == 0
    assert dict(triggered.extra.headers)["holdfast-scheduled-for"] == utc_text(START + 1_000)
