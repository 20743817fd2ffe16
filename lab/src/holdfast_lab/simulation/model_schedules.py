"""An independent model of schedules: checks the stream tick by tick, without the core's code.

It checks: a tick comes as planned, never before its time, never while its schedule is paused, and never twice; fired,
skipped and missed ticks together are all ticks (of intervals and of `* * * * *`, which can be counted); late ticks
follow the catch-up rule, overlapping jobs the overlap rule; a schedule is set, paused and deleted only as allowed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

LATE_MS = 60_000
_SECOND_MS, _MINUTE_MS = 1_000, 60_000
_EVERY_MINUTE = "* * * * *"

Require = Callable[[bool, str], None]


@dataclass(slots=True)
class ModelSchedule:
    """The state of one schedule according to the stream."""

    spec: list[Any]
    created_ms: int
    next_ms: int
    last_tick_ms: int = 0
    last_job_id: str = ""
    fired: int = 0
    skipped: int = 0
    missed: int = 0
    is_paused: bool = False
    #: Ticks that created a job; the key of a tick is its second.
    ticks: set[int] = field(default_factory=set)

    @property
    def at_ms(self) -> int:
        """The time of a one-shot, else 0."""
        return int(self.spec[5])

    @property
    def catch_up(self) -> str:
        """The rule for missed ticks."""
        return str(self.spec[7])

    @property
    def window_ms(self) -> int:
        """The maximal age of a tick that is caught up; ticks on time need no window."""
        return max(int(self.spec[8]), LATE_MS)

    @property
    def overlap(self) -> str:
        """The rule for a last job that has not ended."""
        return str(self.spec[9])

    @property
    def queue(self) -> str:
        """The queue of its jobs."""
        return str(self.spec[1][1])

    @property
    def period_ms(self) -> int:
        """The time between two ticks; 0 if it varies."""
        return int(self.spec[4]) or (_MINUTE_MS if self.spec[3] == _EVERY_MINUTE else 0)

    def after(self, at_ms: int, said_ms: int = 0) -> int:
        """Returns the first tick later than this; `said_ms` if ticks cannot be counted."""
        if not self.period_ms:
            return said_ms
        start_ms = -(-self.created_ms // _SECOND_MS) * _SECOND_MS if self.spec[4] else 0
        steps = (at_ms - start_ms) // self.period_ms + 1
        return start_ms + max(1 if self.spec[4] else 0, steps) * self.period_ms

    def view(self) -> dict[str, object]:
        """Returns the schedule as plain values."""
        names = ("created_ms", "next_ms", "last_tick_ms", "last_job_id", "fired", "skipped", "missed", "is_paused")
        return {"name": self.spec[0], **{name: getattr(self, name) for name in names}}


class ModelSchedules:
    """The schedules after a prefix of the stream."""

    def __init__(self, require: Require) -> None:
        self._require = require
        self.kept: dict[str, ModelSchedule] = {}

    def known(self, name: str) -> ModelSchedule:
        """Returns a schedule; raises if there is none of this name."""
        self._require(name in self.kept, f"there is no schedule {name}")
        return self.kept[name]

    def set(self, at_ms: int, spec: list[Any], next_ms: int) -> None:
        """Creates or replaces a schedule, with a new plan."""
        before = self.kept.get(spec[0])
        schedule = ModelSchedule(spec, at_ms, next_ms)
        if before is not None:
            self._require(before.spec != spec or not before.next_ms, f"schedule {spec[0]} was set to what it was")
            schedule.last_tick_ms, schedule.last_job_id = before.last_tick_ms, before.last_job_id
            schedule.fired, schedule.skipped, schedule.missed = before.fired, before.skipped, before.missed
            schedule.is_paused, schedule.ticks = before.is_paused, before.ticks
        right = schedule.at_ms or schedule.after(at_ms, next_ms)
        if before is not None and right <= before.last_tick_ms:
            right = 0
        self._require(next_ms == right, f"schedule {spec[0]} was planned for {next_ms}, not for {right}")
        self.kept[spec[0]] = schedule

    def delete(self, name: str) -> None:
        """Deletes a schedule."""
        self.known(name)
        del self.kept[name]

    def pause(self, at_ms: int, name: str, next_ms: int, *, is_paused: bool) -> None:
        """Pauses or resumes a schedule; only ticks within the pause are passed over."""
        schedule = self.known(name)
        self._require(schedule.is_paused != is_paused, f"schedule {name} was paused or resumed twice")
        right = schedule.next_ms
        if not is_paused and 0 < right <= at_ms:
            right = 0 if schedule.at_ms else schedule.after(at_ms, next_ms)
        self._require(next_ms == right, f"schedule {name} continues at {next_ms}, not at {right}")
        schedule.is_paused, schedule.next_ms = is_paused, next_ms

    # -- ticks

    def tick(self, at_ms: int, fields: list[Any], *, is_busy: bool, is_draining: bool) -> None:
        """Checks one planned tick; its job, if any, is checked elsewhere."""
        name, tick_ms, outcome, next_ms, missed, *_ = fields
        schedule = self.known(name)
        self._require(not schedule.is_paused, f"schedule {name} ticked while it was paused")
        self._require(0 < schedule.next_ms <= tick_ms, f"schedule {name} ticked for {tick_ms}, before its next")
        self._require(tick_ms <= at_ms, f"schedule {name} ticked at {at_ms}, before its time {tick_ms}")
        self._require(not next_ms or next_ms > tick_ms, f"after {tick_ms}, {name} continues at {next_ms}")
        if outcome == "missed":
            self._check_missed(schedule, at_ms, next_ms, missed)
        else:
            self._check_tick(schedule, at_ms, tick_ms, next_ms, missed)
            is_skip = is_draining or (is_busy and schedule.overlap == "skip")
            right = "skipped" if is_skip else "fired"
            self._require(outcome == right, f"a tick of {name} was {outcome} and should have been {right}")
        if outcome == "fired":
            self._require(tick_ms not in schedule.ticks, f"the tick {tick_ms} of {name} made two jobs")
            schedule.ticks.add(tick_ms)
        schedule.fired += outcome == "fired"
        schedule.skipped += outcome == "skipped"
        schedule.missed += missed
        schedule.last_tick_ms, schedule.next_ms = tick_ms, next_ms

    def _check_missed(self, schedule: ModelSchedule, at_ms: int, next_ms: int, missed: int) -> None:
        """Checks missed ticks: all that are too late are counted, and none that could have been caught up."""
        name, first_ms, period_ms = schedule.spec[0], schedule.next_ms, schedule.period_ms
        self._require(not schedule.at_ms, f"the only tick of {name} was passed over")
        if not period_ms:
            return
        self._require(missed * period_ms == next_ms - first_ms, f"{missed} ticks of {name} were missed, which is wrong")
        self._require(missed > 0, f"a missed tick of {name} was recorded, but none was missed")
        last_ms = next_ms - period_ms
        limit_ms = LATE_MS if schedule.catch_up == "none" else schedule.window_ms
        self._require(last_ms < at_ms - limit_ms, f"the tick {last_ms} of {name} was passed over too early")
        self._require(next_ms >= at_ms - LATE_MS, f"schedule {name} continues with {next_ms}, which is late already")

    def _check_tick(self, schedule: ModelSchedule, at_ms: int, tick_ms: int, next_ms: int, missed: int) -> None:
        name, period_ms = schedule.spec[0], schedule.period_ms
        if schedule.at_ms:
            is_right = (tick_ms, next_ms, missed) == (schedule.at_ms, 0, 0)
            self._require(is_right, f"the one tick of {name} was {tick_ms}, followed by {next_ms}")
        elif period_ms:
            self._check_counted(schedule, at_ms, tick_ms, next_ms, missed)

    def _check_counted(self, schedule: ModelSchedule, at_ms: int, tick_ms: int, next_ms: int, missed: int) -> None:
        name, first_ms, period_ms = schedule.spec[0], schedule.next_ms, schedule.period_ms
        self._require(next_ms == tick_ms + period_ms, f"after {tick_ms}, {name} continues at {next_ms}")
        self._require(missed * period_ms == tick_ms - first_ms, f"{missed} ticks of {name} were missed, which is wrong")
        right = first_ms
        if at_ms - first_ms > LATE_MS:
            self._require(schedule.catch_up != "none", f"the missed tick {tick_ms} of {name} was caught up")
            if schedule.catch_up == "latest":
                right = first_ms + (at_ms - first_ms) // period_ms * period_ms
            else:
                right = max(first_ms, schedule.after(at_ms - schedule.window_ms - 1))
        self._require(tick_ms == right, f"schedule {name} ticked for {tick_ms}, not for {right}")

    def trigger(self, fields: list[Any]) -> None:
        """Checks a trigger, which is independent of the plan."""
        name, _, _, next_ms, missed, *_ = fields
        schedule = self.known(name)
        self._require(next_ms == schedule.next_ms and not missed, f"a trigger moved the plan of {name}")
        schedule.fired += 1

    def check_job(self, fields: list[Any]) -> None:
        """Checks the job of a tick: it has the tick's time and schedule, and is due at the tick or a little later."""
        name, tick_ms, outcome, *_ = fields
        schedule, job = self.known(name), fields[6]
        text = datetime.fromtimestamp(tick_ms // _SECOND_MS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        headers = dict(job[4][2])
        told = headers.get("holdfast-schedule"), headers.get("holdfast-scheduled-for")
        self._require(told == (name, text), f"the job of {name} for {text} has the headers {told}")
        self._require(job[2] == schedule.spec[2], f"the job of {name} carries another payload")
        jitter_ms = schedule.spec[10] if outcome == "fired" else 0
        delay_ms = job[3] - tick_ms if job[3] else 0
        self._require(0 <= delay_ms <= jitter_ms, f"the job of {name} is due {delay_ms} ms after its tick")
        schedule.last_job_id = job[0]
