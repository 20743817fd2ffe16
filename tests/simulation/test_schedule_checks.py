"""The schedule checker detects each planted error."""

import pytest

from holdfast.core import events
from holdfast.core.model import Extra, NewJob, ScheduleSpec, Template
from holdfast_lab.simulation.model import Model, ModelViolation

TEMPLATE = Template("type")
START, STEP = 1_767_225_600_000, 10_000
NAMES = (("holdfast-schedule", "s"), ("holdfast-scheduled-for", "2026-01-01T00:00:10Z"))


class Stream:
    """Feeds events to the model one by one, as a journal would hold them."""

    def __init__(self) -> None:
        self.model = Model()

    def feed(self, *some: events.AnyEvent) -> "Stream":
        for event in some:
            self.model.feed(events.join([events.encode_one(event)]), self.model.position + 1)
        return self


def set_at(at_ms: int = START, next_ms: int = START + STEP, **rules: object) -> events.ScheduleSet:
    fields = {"every_ms": STEP, **rules}
    return events.ScheduleSet(at_ms, ScheduleSpec("s", TEMPLATE, **fields), next_ms)  # type: ignore[arg-type]


def job(job_id: str = "a", headers: tuple[tuple[str, str], ...] = NAMES, not_before_ms: int = 0) -> NewJob:
    return NewJob(job_id, 0, b"", not_before_ms, Extra(headers=headers))


def tick(
    at_ms: int = START + STEP,
    tick_ms: int = START + STEP,
    outcome: str = "fired",
    next_ms: int = START + 2 * STEP,
    missed: int = 0,
    made: NewJob | None = None,
    canceled: str = "",
) -> events.Ticked:
    made = made or (job() if outcome in ("fired", "triggered") else None)
    template = TEMPLATE if made else None
    return events.Ticked(at_ms, "s", tick_ms, outcome, next_ms, missed, template, made, canceled, 5 if canceled else 0)


LATE = START + 20 * STEP


@pytest.mark.parametrize(
    ("rules", "lie", "words"),
    [
        ({}, tick(at_ms=START + STEP - 1), "before its time"),
        ({}, tick(tick_ms=START), "before its next"),
        ({}, tick(START + STEP + 1, START + STEP + 1, next_ms=START + 2 * STEP + 1), "which is wrong"),
        ({}, tick(next_ms=START + 3 * STEP), "continues at"),
        ({}, tick(next_ms=START + STEP), "continues at"),
        ({}, tick(outcome="skipped"), "should have been fired"),
        ({}, tick(outcome="missed", missed=1), "passed over too early"),
        ({}, tick(at_ms=LATE), "was caught up"),
        ({}, tick(at_ms=LATE, outcome="missed", next_ms=START + 14 * STEP, missed=12), "which is wrong"),
        ({}, tick(at_ms=LATE, outcome="missed", next_ms=START + 13 * STEP, missed=12), "late already"),
        ({}, tick(at_ms=LATE, outcome="missed", next_ms=START + 15 * STEP, missed=14), "passed over too early"),
        ({"catch_up": "latest"}, tick(at_ms=LATE), "not for"),
        (
            {"catch_up": "all"},
            tick(at_ms=LATE, tick_ms=START + 2 * STEP, next_ms=START + 3 * STEP, missed=1),
            "not for",
        ),
        ({"catch_up": "all", "catch_up_window_ms": 0}, tick(at_ms=LATE), "not for"),
        ({}, tick(made=job(headers=())), "has the headers"),
        ({}, tick(made=job(not_before_ms=START + STEP + 1)), "due 1 ms after"),
        ({"jitter_ms": 5}, tick(made=job(not_before_ms=START + STEP + 6)), "due 6 ms after"),
        ({"payload": b"x"}, tick(), "another payload"),
        ({}, tick(outcome="triggered", tick_ms=START, next_ms=START), "moved the plan"),
        ({"overlap": "cancel_running"}, tick(canceled="nobody"), "canceled 'nobody'"),
    ],
)
def test_tick_that_must_not_be_is_noticed(rules: dict[str, object], lie: events.Ticked, words: str) -> None:
    """The checker detects a tick that is early, late or miscounted, or whose job does not match its schedule."""
    stream = Stream().feed(set_at(**rules))  # type: ignore[arg-type]
    with pytest.raises(ModelViolation, match=words):
        stream.feed(lie)


def test_second_job_of_a_tick_is_noticed() -> None:
    """The checker detects a second job of the same tick, even if the plan was moved back."""
    stream = Stream().feed(set_at(), tick())
    stream.model.schedules.kept["s"].next_ms = START + STEP
    with pytest.raises(ModelViolation, match="made two jobs"):
        stream.feed(tick(made=job("b")))


@pytest.mark.parametrize(
    ("overlap", "words"), [("skip", "should have been skipped"), ("cancel_running", "canceled ''")]
)
def test_overlap_that_is_not_looked_at_is_noticed(overlap: str, words: str) -> None:
    """The checker detects a new job that ignores the overlap rule while the last job still waits."""
    headers = (("holdfast-schedule", "s"), ("holdfast-scheduled-for", "2026-01-01T00:00:20Z"))
    stream = Stream().feed(set_at(overlap=overlap), tick())
    second = tick(START + 2 * STEP, START + 2 * STEP, next_ms=START + 3 * STEP, made=job("b", headers))
    with pytest.raises(ModelViolation, match=words):
        stream.feed(second)


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (set_at(START + 1), "set to what it was"),
        (set_at(START + 1, START + STEP, payload=b"x"), "was planned for"),
        (events.SchedulePaused(START + 1, "s", is_paused=False, next_ms=START + STEP), "resumed twice"),
        (events.SchedulePaused(START + 1, "s", is_paused=True, next_ms=START + 2 * STEP), "continues at"),
        (events.ScheduleDeleted(START + 1, "t"), "no schedule t"),
        (events.Ticked(START + STEP, "t", START + STEP, "fired", 0, 0, TEMPLATE, job()), "no schedule t"),
    ],
)
def test_change_that_cannot_be_is_noticed(lie: events.AnyEvent, words: str) -> None:
    """The checker detects a change of an unknown schedule, one without effect, and one with a wrong next tick."""
    stream = Stream().feed(set_at())
    with pytest.raises(ModelViolation, match=words):
        stream.feed(lie)


def test_tick_of_a_paused_schedule_is_noticed() -> None:
    """The checker detects a tick of a paused schedule, and a resumed one that fires ticks of its pause."""
    stream = Stream().feed(set_at(), events.SchedulePaused(START + 1, "s", is_paused=True, next_ms=START + STEP))
    with pytest.raises(ModelViolation, match="while it was paused"):
        stream.feed(tick())
    stream = Stream().feed(set_at(), events.SchedulePaused(START + 1, "s", is_paused=True, next_ms=START + STEP))
    with pytest.raises(ModelViolation, match="continues at"):
        stream.feed(events.SchedulePaused(LATE, "s", is_paused=False, next_ms=START + STEP))
