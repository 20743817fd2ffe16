"""Schedules: ticks, their times, and the treatment of missed ticks."""

from datetime import UTC, datetime

import pytest

from holdfast.core import commands, events
from holdfast.core.commands import Decision, Refusal
from holdfast.core.image import dump, load
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import CANCELED, QUEUED, RUNNING
from holdfast.core.model import Now, ScheduleSpec, Template

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1_000)


class Clockwork:
    """A ledger and a time that a test controls; every event is applied and kept."""

    def __init__(self) -> None:
        self.ledger = Ledger(LedgerConfig())
        self.now_ms = START
        self.events: list[events.AnyEvent] = []
        self._ids = 0

    def do(self, command: commands.AnyCommand) -> object:
        """Returns the reply or the refusal."""
        decision = self.ledger.decide(command, Now(self.now_ms, self.now_ms))
        if isinstance(decision, Refusal):
            return decision
        assert isinstance(decision, Decision)
        if decision.event is not None:
            self.ledger.apply(decision.event)
            self.events.append(decision.event)
        self.ledger.state.audit()
        return decision.reply

    def set(self, **fields: object) -> object:
        """Creates the schedule `s`."""
        return self.do(commands.SetSchedule(ScheduleSpec("s", Template("work"), **fields)))  # type: ignore[arg-type]

    def advance(self, ms: int) -> list[events.Ticked]:
        """Advances the time in one step; returns the tick events."""
        self.now_ms += ms
        before = len(self.events)
        while True:
            self._ids += 1
            if self.do(commands.Tick(f"job-{self._ids}")) is not True:
                break
        return [event for event in self.events[before:] if isinstance(event, events.Ticked)]

    def walk(self, ms: int, step_ms: int) -> list[events.Ticked]:
        """Advances the time in several steps; returns the tick events."""
        return [tick for _ in range(ms // step_ms) for tick in self.advance(step_ms)]


@pytest.fixture
def clockwork() -> Clockwork:
    return Clockwork()


def ticks(found: list[events.Ticked], outcome: str = "fired") -> list[int]:
    return [tick.tick_ms for tick in found if tick.outcome == outcome]


def test_every_minute_fires_once_a_minute(clockwork: Clockwork) -> None:
    """An every-minute schedule writes one event with one job per minute, in the second that the expression names."""
    clockwork.set(cron="* * * * *")
    found = clockwork.walk(10 * MINUTE, 7_000)
    assert ticks(found) == [START + number * MINUTE for number in range(1, 10)]
    assert [tick.job.id in clockwork.ledger.state.jobs for tick in found if tick.job] == [True] * 9


def test_job_is_told_its_scheduled_time(clockwork: Clockwork) -> None:
    """The headers of a job name the schedule and the tick, however late the job was created."""
    clockwork.set(cron="30 0 * * *")
    (tick,) = clockwork.advance(30 * MINUTE + 42_000)
    assert tick.job is not None
    assert tick.job.extra is not None
    headers = dict(tick.job.extra.headers)
    assert headers == {"holdfast-schedule": "s", "holdfast-scheduled-for": "2026-01-01T00:30:00Z"}


def test_interval_counts_from_when_it_was_made(clockwork: Clockwork) -> None:
    """The ticks of an interval are multiples of it, counted from the creation of the schedule."""
    clockwork.set(every_ms=90_000)
    assert ticks(clockwork.walk(6 * MINUTE, 10_000)) == [START + 90_000 * number for number in (1, 2, 3, 4)]


def test_one_shot_fires_once_and_stays_listed(clockwork: Clockwork) -> None:
    """A one-shot schedule fires once and then has no next tick."""
    clockwork.set(at_ms=START + HOUR)
    assert ticks(clockwork.walk(3 * HOUR, MINUTE)) == [START + HOUR]
    assert clockwork.ledger.state.schedules["s"].next_ms == 0


def test_one_shot_that_was_missed_comes_late(clockwork: Clockwork) -> None:
    """A missed one-shot tick fires late, whatever the catch-up rule, because it has no other tick."""
    clockwork.set(at_ms=START + HOUR)
    assert ticks(clockwork.advance(7 * DAY)) == [START + HOUR]


def test_missed_ticks_are_passed_over_by_default(clockwork: Clockwork) -> None:
    """By default, one event counts the ticks missed in a week offline, and the schedule continues with the next."""
    clockwork.set(cron="0 * * * *")
    found = clockwork.advance(7 * DAY + MINUTE + 30_000)
    assert [(tick.outcome, tick.missed) for tick in found] == [("missed", 7 * 24)]
    assert ticks(clockwork.walk(HOUR, MINUTE)) == [START + 7 * DAY + HOUR]


def test_only_the_latest_missed_tick_is_made_up_for(clockwork: Clockwork) -> None:
    """With catch-up `latest`, downtime causes one job, for the last missed tick."""
    clockwork.set(cron="0 * * * *", catch_up="latest")
    found = clockwork.advance(5 * HOUR + 30 * MINUTE)
    assert [(tick.outcome, tick.tick_ms, tick.missed) for tick in found] == [("fired", START + 5 * HOUR, 4)]


def test_all_missed_ticks_within_the_window_are_made_up_for(clockwork: Clockwork) -> None:
    """With catch-up `all`, ticks within the window fire one by one, and older ones count as missed."""
    clockwork.set(cron="0 * * * *", catch_up="all", catch_up_window_ms=3 * HOUR)
    found = clockwork.advance(10 * HOUR + 30 * MINUTE)
    assert ticks(found) == [START + hours * HOUR for hours in (8, 9, 10)]
    assert sum(tick.missed for tick in found) == 7


@pytest.mark.parametrize("catch_up", ["none", "latest", "all"])
def test_no_tick_is_lost_or_doubled_however_time_passes(clockwork: Clockwork, catch_up: str) -> None:
    """However time advances, fired and missed ticks add up to all ticks, each once."""
    clockwork.set(every_ms=5_000, catch_up=catch_up, catch_up_window_ms=10 * MINUTE)
    found: list[events.Ticked] = []
    for step in (1_000, 4_000, 61_000, 59_999, 3_600_001, 5_000, 86_400_000, 1, 70_000):
        found += clockwork.advance(step)
    fired = ticks(found)
    assert len(fired) == len(set(fired))
    last = clockwork.ledger.state.schedules["s"].next_ms - 5_000
    assert len(fired) + sum(tick.missed for tick in found) == (last - START) // 5_000


def test_overlap_is_skipped_while_the_last_job_has_not_ended(clockwork: Clockwork) -> None:
    """With overlap `skip`, a tick is recorded without a job while the last job has not ended."""
    clockwork.set(every_ms=60_000, overlap="skip")
    assert [tick.outcome for tick in clockwork.walk(3 * MINUTE, MINUTE)] == ["fired", "skipped", "skipped"]


@pytest.mark.parametrize("is_running", [True, False])
def test_overlap_cancels_the_last_job(clockwork: Clockwork, is_running: bool) -> None:  # noqa: FBT001
    """With overlap `cancel_running`, the event of the next tick cancels the last job, waiting or running."""
    clockwork.set(every_ms=60_000, overlap="cancel_running")
    (first,) = clockwork.advance(MINUTE)
    assert first.job is not None
    if is_running:
        clockwork.do(commands.GrantLeases("w", frozenset({"work"}), frozenset(), 1, 1_000_000))
    clockwork.advance(MINUTE)
    job = clockwork.ledger.state.jobs[first.job.id]
    assert (job.state, job.cancel_requested) == (RUNNING if is_running else CANCELED, True)


def test_jitter_delays_the_job_and_not_the_tick(clockwork: Clockwork) -> None:
    """Jitter delays the job by at most its bound, and does not move the tick."""
    clockwork.set(cron="0 * * * *", jitter_ms=10 * MINUTE)
    found = clockwork.walk(24 * HOUR, HOUR)
    delays = [tick.job.not_before_ms - tick.tick_ms for tick in found if tick.job]
    assert len(set(delays)) > 10
    assert all(0 <= delay <= 10 * MINUTE for delay in delays)


def test_paused_schedule_fires_no_tick(clockwork: Clockwork) -> None:
    """A paused schedule fires no ticks, and after the pause continues with the next one."""
    clockwork.set(cron="0 * * * *", catch_up="all")
    clockwork.do(commands.PauseSchedule("s", is_paused=True))
    assert clockwork.advance(5 * HOUR + 1) == []
    clockwork.do(commands.PauseSchedule("s", is_paused=False))
    assert ticks(clockwork.walk(HOUR, MINUTE)) == [START + 6 * HOUR]


def test_trigger_makes_a_job_beside_the_plan(clockwork: Clockwork) -> None:
    """A trigger creates a job even while the schedule is paused, and does not move the next tick."""
    clockwork.set(cron="0 * * * *")
    next_ms = clockwork.ledger.state.schedules["s"].next_ms
    clockwork.do(commands.PauseSchedule("s", is_paused=True))
    assert clockwork.do(commands.TriggerSchedule("s", "by-hand")) == "by-hand"
    assert clockwork.ledger.state.jobs["by-hand"].state == QUEUED
    assert clockwork.ledger.state.schedules["s"].next_ms == next_ms


def test_setting_the_same_again_changes_nothing(clockwork: Clockwork) -> None:
    """Setting an equal schedule again, as programs do at every start, writes no event."""
    clockwork.set(every_ms=60_000)
    clockwork.advance(90_000)
    before = len(clockwork.events)
    clockwork.set(every_ms=60_000)
    assert len(clockwork.events) == before
    clockwork.set(every_ms=120_000)
    assert clockwork.ledger.state.schedules["s"].next_ms == START + 90_000 + 120_000


def test_deleted_schedule_ticks_no_more_and_its_jobs_stay(clockwork: Clockwork) -> None:
    """A deleted schedule fires no ticks, its jobs stay, and a second delete is refused."""
    clockwork.set(every_ms=60_000)
    clockwork.advance(MINUTE)
    clockwork.do(commands.DeleteSchedule("s"))
    assert clockwork.advance(DAY) == []
    assert len(clockwork.ledger.state.jobs) == 1
    refusal = clockwork.do(commands.DeleteSchedule("s"))
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "SCHEDULE_NOT_FOUND"


def test_tick_into_a_draining_queue_is_skipped(clockwork: Clockwork) -> None:
    """A tick for a draining queue is skipped."""
    clockwork.set(every_ms=60_000)
    clockwork.do(commands.SetQueueMode("default", 3, ""))  # type: ignore[arg-type]
    assert [tick.outcome for tick in clockwork.advance(MINUTE)] == ["skipped"]


def test_replay_and_image_give_the_same_state(clockwork: Clockwork) -> None:
    """A replay and an image give the same schedules without a clock or a time zone."""
    clockwork.set(cron="*/10 * * * *", timezone="Europe/Paris", overlap="cancel_running", jitter_ms=5_000)
    clockwork.walk(3 * HOUR, 5 * MINUTE)
    clockwork.do(commands.PauseSchedule("s", is_paused=True))
    replayed = Ledger(LedgerConfig())
    for event in events.decode(events.join([events.encode_one(event) for event in clockwork.events])):
        replayed.apply(event)
    assert replayed.digest == clockwork.ledger.digest
    restored = load(dump(clockwork.ledger), LedgerConfig())
    assert restored.digest == clockwork.ledger.digest
    assert restored.state.schedules == clockwork.ledger.state.schedules == replayed.state.schedules


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "SCHEDULE_TIME_INVALID"),
        ({"cron": "* * * * *", "every_ms": 1_000}, "SCHEDULE_TIME_INVALID"),
        ({"cron": "61 * * * *"}, "CRON_INVALID"),
        ({"cron": "0 0 30 2 *"}, "CRON_INVALID"),
        ({"cron": "* * * * * *"}, "CRON_INVALID"),
        ({"cron": "* * * * *", "timezone": "Mars/Olympus"}, "TIMEZONE_INVALID"),
        ({"cron": "* * * * *", "timezone": "../../etc/passwd"}, "TIMEZONE_INVALID"),
        ({"every_ms": 999}, "EVERY_INVALID"),
        ({"every_ms": 1_500}, "EVERY_INVALID"),
        ({"at_ms": -1_000}, "AT_INVALID"),
        ({"every_ms": 1_000, "catch_up": "some"}, "CATCH_UP_INVALID"),
        ({"every_ms": 1_000, "overlap": "maybe"}, "OVERLAP_INVALID"),
        ({"every_ms": 1_000, "jitter_ms": -1}, "OPTION_OUT_OF_RANGE"),
    ],
)
def test_schedule_that_cannot_be_right_is_refused(clockwork: Clockwork, fields: dict[str, object], reason: str) -> None:
    """An invalid schedule is refused with a reason code and a message."""
    refusal = clockwork.set(**fields)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == reason
    assert refusal.message.startswith("expected") or " must be " in refusal.message
