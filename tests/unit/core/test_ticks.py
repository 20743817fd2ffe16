"""The rules of ticks, as functions of a schedule and simple values."""

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
    """Returns a schedule that was created at the start and has not ticked yet."""
    wanted = spec(**fields)
    return Schedule(wanted, START, planned(None, wanted, START))


def test_tick_in_time_comes_up_by_itself() -> None:
    """A tick that is late by no more than a minute fires normally, and the next one follows it."""
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
    """The rule fires none of the late ticks, the last one or the first within the window, and counts the rest."""
    one = schedule(every_ms=HOUR, catch_up=catch_up, catch_up_window_ms=3 * HOUR)
    assert due_tick(one, START + 9 * HOUR + 30 * MINUTE) == expected


def test_one_shot_comes_late_rather_than_never() -> None:
    """A one-shot tick fires however late it is, and no tick follows it."""
    assert due_tick(schedule(at_ms=START + HOUR), START + 365 * DAY) == DueTick(START + HOUR, 0)


def test_passed_over_ticks_leave_those_that_are_not_late() -> None:
    """After missed ticks the next tick may be due already."""
    due = due_tick(schedule(every_ms=20_000), START + 10 * MINUTE)
    assert due == DueTick(START + 20_000, START + 9 * MINUTE, 26, is_missed=True)


def test_schedule_set_again_keeps_its_plan() -> None:
    """A schedule that is set again keeps its plan, unless its spec changed or it has no next tick."""
    one = schedule()
    assert is_planned(one, spec())
    assert not is_planned(one, spec(every_ms=DAY))
    assert not is_planned(None, spec())
    one.next_ms = 0
    assert not is_planned(one, spec())


def test_one_shot_that_has_been_does_not_come_again() -> None:
    """A one-shot that has fired gets no tick at the same instant, but gets one at a later instant."""
    one = schedule(at_ms=START + HOUR)
    one.last_tick_ms = START + HOUR
    assert planned(one, spec(at_ms=START + HOUR, payload=b"other"), START + DAY) == 0
    assert planned(one, spec(at_ms=START + 2 * HOUR), START + DAY) == START + 2 * HOUR


def test_pause_is_passed_over_whole() -> None:
    """Ticks during a pause do not fire, and later ones do."""
    assert resumed(schedule(), START + 5 * HOUR) == START + 6 * HOUR
    assert resumed(schedule(), START + MINUTE) == START + HOUR
    assert resumed(schedule(at_ms=START + HOUR), START + 2 * HOUR) == 0


@pytest.mark.parametrize("overlap", ["allow", "skip", "cancel_running"])
def test_overlap_matters_while_the_last_job_has_not_ended(overlap: str) -> None:
    """Only `skip` makes no job, only `cancel_running` cancels one, and a draining queue accepts none."""
    one = spec(every_ms=HOUR, overlap=overlap)
    assert is_skipped(one, is_busy=True, is_draining=False) == (overlap == "skip")
    assert is_canceling(one, is_busy=True) == (overlap == "cancel_running")
    assert not is_skipped(one, is_busy=False, is_draining=False)
    assert not is_canceling(one, is_busy=False)
    assert is_skipped(one, is_busy=False, is_draining=True)


def test_job_knows_its_tick() -> None:
    """Jitter delays a job but not its scheduled time, and the tick of a trigger is the second of the trigger."""
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
