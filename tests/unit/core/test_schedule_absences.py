"""Schedules with downtime, clock jumps and a missing time zone."""

import random

import pytest

from holdfast.clock import Uptime
from holdfast.core import commands, cron, events
from holdfast.core.commands import Decision
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.model import Now, ScheduleSpec, Template
from holdfast.ledger.command_clock import CommandClock

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
START = 1_767_225_600_000


class Watch:
    """The two clocks of a machine."""

    def __init__(self) -> None:
        self.steady, self.wall = 0, START

    def steady_ms(self) -> int:
        return self.steady

    def uptime(self) -> Uptime | None:
        return Uptime("one", self.steady)

    def wall_ms(self) -> int:
        return self.wall

    def go(self, ms: int, wall_ms: int | None = None) -> None:
        """Advances both clocks, the wall clock by another amount if `wall_ms` is given."""
        self.steady += ms
        self.wall += ms if wall_ms is None else wall_ms


class Place:
    """A ledger with a timekeeper; all events are kept."""

    def __init__(self) -> None:
        self.watch = Watch()
        self.ledger = Ledger(LedgerConfig())
        self.time = CommandClock(self.watch, 0)
        self.events: list[events.AnyEvent] = []

    def restart(self) -> None:
        """Replays all events, as another process would."""
        self.ledger = Ledger(LedgerConfig())
        for event in self.events:
            self.ledger.apply(event)
        self.time = CommandClock(self.watch, self.ledger.state.last_ms, previous=self.time.log.mark)

    def do(self, command: commands.AnyCommand) -> object:
        """Decides and applies a command; returns its reply."""
        decision = self.ledger.decide(command, self.time.now())
        assert isinstance(decision, Decision)
        if decision.event is not None:
            self.ledger.apply(decision.event)
            self.events.append(decision.event)
        return decision.reply

    def set(self, **fields: object) -> None:
        """Creates the schedule `s`."""
        self.do(commands.SetSchedule(ScheduleSpec("s", Template("work"), **fields)))  # type: ignore[arg-type]

    def tick(self) -> list[events.Ticked]:
        """Processes all due ticks and returns their events."""
        before = len(self.events)
        while self.do(commands.Tick(f"job-{len(self.events)}")):
            pass
        return [event for event in self.events[before:] if isinstance(event, events.Ticked)]

    @property
    def ticked(self) -> list[events.Ticked]:
        """All tick events so far."""
        return [event for event in self.events if isinstance(event, events.Ticked)]

    @property
    def next_ms(self) -> int:
        """The next tick of the schedule `s`."""
        return self.ledger.state.schedules["s"].next_ms


@pytest.fixture
def place() -> Place:
    return Place()


def test_week_offline_counts_every_minute(place: Place) -> None:
    """After a week offline every missed minute is counted, and a tick of the last minute fires on time."""
    place.set(cron="* * * * *")
    place.watch.go(7 * DAY + 30 * SECOND)
    place.restart()
    found = place.tick()
    assert [(tick.outcome, tick.missed) for tick in found] == [("missed", 7 * 24 * 60 - 1), ("fired", 0)]
    assert place.next_ms == START + 7 * DAY + MINUTE


def test_tick_exactly_a_minute_late_is_on_time(place: Place) -> None:
    """A tick that is processed a minute late fires, and one that is a millisecond later is missed."""
    place.set(every_ms=HOUR)
    place.watch.go(HOUR + MINUTE)
    assert [tick.outcome for tick in place.tick()] == ["fired"]
    place.watch.go(HOUR + 1)
    assert [tick.outcome for tick in place.tick()] == ["missed"]


@pytest.mark.parametrize("catch_up", ["latest", "all"])
def test_window_below_a_minute_passes_over_nothing_that_is_on_time(place: Place, catch_up: str) -> None:
    """A catch-up window below a minute drops no tick that is on time."""
    place.set(every_ms=10_000, catch_up=catch_up, catch_up_window_ms=1_000)
    place.watch.go(2 * MINUTE)
    fired = [tick.tick_ms for tick in place.tick() if tick.outcome == "fired"]
    first = START + (2 * MINUTE if catch_up == "latest" else MINUTE)
    assert fired == list(range(first, START + 2 * MINUTE + 1, 10_000))


@pytest.mark.parametrize("jump_ms", [HOUR, DAY, -HOUR, -DAY, -START])
def test_clock_that_jumps_fires_no_tick_twice(place: Place, jump_ms: int) -> None:
    """If the clock jumps and jumps back, no tick fires twice, and fired and missed ticks add up to all ticks."""
    place.set(every_ms=MINUTE)
    for _ in range(10):
        place.watch.go(20_000)
        place.tick()
    place.watch.go(0, jump_ms)
    place.tick()
    place.watch.go(0, -jump_ms)
    place.restart()
    for _ in range(10):
        place.watch.go(20_000)
        place.tick()
    fired = [tick.tick_ms for tick in place.ticked if tick.outcome == "fired"]
    assert fired == sorted(set(fired))
    assert len(fired) + sum(tick.missed for tick in place.ticked) == (place.next_ms - MINUTE - START) // MINUTE


@pytest.mark.parametrize("seed", range(10))
def test_every_tick_of_a_cron_expression_is_accounted_for(seed: int) -> None:
    """Over downtime, restarts and clock jumps of any length, fired and missed ticks add up to all ticks."""
    rng, place = random.Random(seed), Place()
    catch_up = rng.choice(["none", "latest", "all"])
    place.set(cron="*/7 * * * *", timezone="Europe/Paris", catch_up=catch_up, catch_up_window_ms=3 * HOUR)
    first_ms = place.next_ms
    for _ in range(40):
        place.watch.go(rng.choice([1, SECOND, 59_000, MINUTE, HOUR, 3 * DAY]), rng.choice([None, None, -HOUR, 5 * DAY]))
        if rng.random() < 0.3:
            place.restart()
        place.tick()
    fired = [tick.tick_ms for tick in place.ticked if tick.outcome == "fired"]
    assert fired == sorted(set(fired))
    passed = cron.count_between("*/7 * * * *", "Europe/Paris", first_ms, place.next_ms)
    assert len(fired) + sum(tick.missed for tick in place.ticked) == passed


def test_one_shot_that_is_set_again_after_its_time_does_not_fire_again(place: Place) -> None:
    """A one-shot schedule that is set again with the same instant does not fire again, even with another payload."""
    place.set(at_ms=START + HOUR)
    place.watch.go(HOUR)
    assert len(place.tick()) == 1
    place.set(at_ms=START + HOUR, payload=b"other")
    assert (place.tick(), place.next_ms) == ([], 0)
    place.set(at_ms=START + 2 * HOUR, payload=b"other")
    place.watch.go(HOUR)
    assert [tick.tick_ms for tick in place.tick()] == [START + 2 * HOUR]


def test_schedule_whose_zone_is_gone_ends_and_can_be_set_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule whose zone is gone fires its planned tick and ends, and setting it again plans anew."""
    place.set(cron="0 * * * *", timezone="Europe/Paris", catch_up="latest")
    place.watch.go(5 * HOUR)
    with monkeypatch.context() as without:
        without.setattr(cron, "_zone_names", lambda: frozenset({"UTC"}))
        cron.zone.cache_clear()
        assert [(tick.outcome, tick.tick_ms, tick.next_ms) for tick in place.tick()] == [("fired", START + HOUR, 0)]
    place.set(cron="0 * * * *", timezone="Europe/Paris", catch_up="latest")
    assert place.next_ms == START + 6 * HOUR


def test_time_of_a_command_is_all_that_decides() -> None:
    """Two ledgers that receive the same commands at the same times decide the same."""
    ledgers = [Ledger(LedgerConfig()), Ledger(LedgerConfig())]
    for ledger in ledgers:
        for at_ms, command in (
            (START, commands.SetSchedule(ScheduleSpec("s", Template("work"), cron="0 9", timezone="Asia/Kathmandu"))),
            (START + DAY, commands.Tick("a")),
            (START + DAY, commands.Tick("b")),
        ):
            decision = ledger.decide(command, Now(at_ms, at_ms))
            assert isinstance(decision, Decision)
            if decision.event is not None:
                ledger.apply(decision.event)
    assert ledgers[0].digest == ledgers[1].digest
    assert ledgers[0].state.schedules == ledgers[1].state.schedules
