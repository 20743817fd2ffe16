"""Schedules in PostgreSQL and in the ledger behave the same for the same commands at the same instants."""

import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from holdfast.core import commands, events
from holdfast.core.commands import AnyCommand, Refusal
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.model import Now, QueueMode, ScheduleSpec, Template
from holdfast.errors import HoldfastError
from holdfast.ledger.views import schedule_view
from holdfast.ports import ScheduleView
from holdfast.topologies.pipeline.postgres.database import PostgresStore
from tests.integration.pipeline.turned_clock import DAY, HOUR, MINUTE, SECOND, START, Clockwork, TurnedClock

STEPS = 130
NAMES = ("a", "b", "c")
TEMPLATE = Template("work")
TIMES: tuple[dict[str, object], ...] = (
    {"cron": "*/20 *"},
    {"cron": "30 2 * * *", "timezone": "Europe/Paris"},
    {"every_ms": 7 * MINUTE},
    {"at_ms": START + DAY},
    {"cron": "@hourly"},
    {"cron": "not cron"},
    {"every_ms": 1_500},
)


class Twins:
    """A ledger and a database that get the same commands, and whose results are compared."""

    def __init__(self, clockwork: Clockwork) -> None:
        self.clockwork, self.schedules = clockwork, clockwork.schedules
        self.ledger = Ledger(LedgerConfig())
        self.ids = 0
        self.seen: Counter[str] = Counter()

    def _decide(self, command: AnyCommand) -> tuple[object, events.AnyEvent | None]:
        now_ms = self.clockwork.clock.now_ms
        decision = self.ledger.decide(command, Now(now_ms, now_ms))
        if isinstance(decision, Refusal):
            return decision.reason, None
        if decision.event is not None:
            self.ledger.apply(decision.event)
        return "", decision.event

    def _job_id(self) -> str:
        self.ids += 1
        return f"{self.ids:08}-0000-4000-8000-000000000000"

    async def set(self, spec: ScheduleSpec) -> tuple[object, object]:
        return self._decide(commands.SetSchedule(spec))[0], await reason_of(self.schedules.set(spec))

    async def delete(self, name: str) -> tuple[object, object]:
        return self._decide(commands.DeleteSchedule(name))[0], await reason_of(self.schedules.delete(name))

    async def pause(self, name: str, *, is_paused: bool) -> tuple[object, object]:
        here = self._decide(commands.PauseSchedule(name, is_paused))[0]
        return here, await reason_of(self.schedules.pause(name, is_paused=is_paused))

    async def trigger(self, name: str) -> tuple[object, object]:
        here = self._decide(commands.TriggerSchedule(name, self._job_id()))[0]
        return here, await reason_of(self.schedules.trigger(name))

    async def end_last(self, name: str) -> tuple[object, object]:
        """Cancels the last job of a schedule, if it has one."""
        schedule = self.ledger.state.schedules.get(name)
        if schedule is None or not schedule.last_job_id:
            return "", ""
        here = self._decide(commands.Cancel(schedule.last_job_id, "enough"))[0]
        last = (await self.schedules.get(name)).last_job_id
        return here, await reason_of(self.clockwork.store.rows.cancel(last, "enough"))

    async def drain(self, mode: QueueMode) -> tuple[object, object]:
        here = self._decide(commands.SetQueueMode(TEMPLATE.queue, mode, ""))[0]
        return here, await reason_of(self.clockwork.store.queues.set_mode(TEMPLATE.queue, mode, ""))

    async def advance(self, ms: int) -> tuple[object, object]:
        """Moves the clock and fires all due ticks."""
        there = await self.clockwork.advance(ms)
        here: list[str] = []
        while isinstance(event := self._decide(commands.Tick(self._job_id()))[1], events.Ticked):
            here.append(event.outcome)
        self.seen.update(here)
        return here, there

    async def compare(self) -> None:
        """Compares everything that clients can see, except job ids."""
        schedules = self.ledger.state.schedules
        here = [_anonymous(schedule_view(schedules[name])) for name in sorted(schedules)]
        assert [_anonymous(view) for view in await self.schedules.all()] == here
        jobs = Counter(int(job.state) for job in self.ledger.state.jobs.values())
        states = await self.clockwork.store.queues.states()
        assert {int(state): count for state, count in states.items() if count} == jobs


def _anonymous(view: ScheduleView) -> dict[str, object]:
    fields = {name: getattr(view, name) for name in view.__struct_fields__}
    return fields | {"last_job_id": bool(view.last_job_id)}


async def reason_of(call: object) -> str:
    """The reason of the refusal; empty if the call succeeds."""
    try:
        await call  # type: ignore[misc]
    except HoldfastError as error:
        return error.reason
    return ""


@pytest.fixture
async def twins(store: PostgresStore, database: str) -> AsyncIterator[Twins]:
    """An empty ledger and an empty database."""
    clock = TurnedClock(database)
    yield Twins(Clockwork(store, clock))
    clock.close()


def drawn_spec(draw: random.Random) -> ScheduleSpec:
    """Draws a random schedule, sometimes an invalid one."""
    fields: dict[str, object] = {
        "catch_up": draw.choice(("none", "latest", "all")),
        "catch_up_window_ms": draw.choice((0, HOUR, 6 * HOUR)),
        "overlap": draw.choice(("allow", "skip", "cancel_running")),
        "jitter_ms": draw.choice((0, MINUTE)),
    }
    return ScheduleSpec(draw.choice(NAMES), TEMPLATE, **fields, **draw.choice(TIMES))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(3))
async def test_both_keep_schedules_alike(twins: Twins, seed: int) -> None:
    """After every random step, the ledger and the database have the same schedules and gave the same refusals."""
    draw = random.Random(seed)
    steps = {
        "set": lambda: twins.set(drawn_spec(draw)),
        "delete": lambda: twins.delete(draw.choice(NAMES)),
        "pause": lambda: twins.pause(draw.choice(NAMES), is_paused=draw.random() < 0.4),
        "trigger": lambda: twins.trigger(draw.choice(NAMES)),
        "end": lambda: twins.end_last(draw.choice(NAMES)),
        "drain": lambda: twins.drain(draw.choice((QueueMode.DRAINING, QueueMode.OPEN, QueueMode.OPEN))),
        "advance": lambda: twins.advance(draw.choice((SECOND, MINUTE, MINUTE, 7 * MINUTE, HOUR, 3 * DAY))),
    }
    for _ in range(STEPS):
        step = draw.choices(list(steps), weights=(5, 1, 2, 1, 2, 1, 9))[0]
        here, there = await steps[step]()
        assert there == here, step
        await twins.compare()
    assert min(twins.seen[outcome] for outcome in ("fired", "skipped", "missed")) > 0
