"""The timer for ticks: on time, without disk space, and after downtime."""

from collections.abc import Callable

import pytest

from holdfast.core import commands
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.model import Extra, NewJob, Schedule, ScheduleSpec, Template
from holdfast.ledger.coordinator import CommandLane, Coordinator, CoordinatorPorts, LoopConfig
from holdfast.ledger.tick_timer import TickTimer
from holdfast_lab.simulation.scheduler import ScheduledCall, SimulatedScheduler

SECOND_MS, HOUR_MS = 1_000, 3_600_000


class Machine:
    """All ports of a coordinator, on a simulated clock; the test controls the free space of its disk."""

    def __init__(self) -> None:
        self.clock = SimulatedScheduler()
        self.end_position = 0
        self.epoch = 1
        self.has_room: Callable[[int], bool] = lambda _: True
        self.frames: list[int] = []

    def soon(self, call: Callable[[], None]) -> None:
        self.clock.after(0, "turn", call)

    def later(self, delay_ms: int, call: Callable[[], None]) -> ScheduledCall:
        return self.clock.after(delay_ms * 1_000, "timer", call)

    def run(self, work: Callable[[], int], done: Callable[[int | BaseException], None], *, is_lone: bool) -> None:
        self.clock.after(5_000, "sync", lambda: done(work()))

    def reserve(self, size: int, *, spare: int = 0) -> bool:
        return self.has_room(spare)

    def write(self, body: bytes, count: int, digest: int, now_ms: int | None = None) -> int:
        self.end_position += count
        self.frames.append(len(body))
        return self.end_position

    def fatal(self, error: BaseException) -> None:
        raise error


class Shop:
    """A coordinator with a ticker."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.ledger = Ledger(LedgerConfig())
        world = CoordinatorPorts(self.machine.clock, self.machine, self.machine, self.machine.fatal)
        self.coordinator = Coordinator(self.ledger, self.machine, world, LoopConfig())
        self._minted = 0
        TickTimer(self.coordinator, self._mint)
        self.coordinator.start()
        self.pass_ms(10)

    def _mint(self) -> str:
        self._minted += 1
        return f"job-{self._minted}"

    def set(self, **fields: object) -> None:
        spec = ScheduleSpec("s", Template("work"), **fields)  # type: ignore[arg-type]
        self.coordinator.call(CommandLane.SUBMIT, commands.SetSchedule(spec), lambda _: None)
        self.pass_ms(10)

    def pass_ms(self, ms: int) -> None:
        ended: list[bool] = []
        self.machine.clock.after(ms * 1_000, "end", lambda: ended.append(True))
        while not ended:
            self.machine.clock.step()

    @property
    def schedule(self) -> Schedule:
        return self.ledger.state.schedules["s"]


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_ticks_come_although_nothing_else_happens(shop: Shop) -> None:
    """Ticks fire in their second without any command that wakes the loop."""
    shop.set(every_ms=SECOND_MS)
    shop.pass_ms(10 * SECOND_MS)
    assert (shop.schedule.fired, shop.schedule.missed) == (9, 0)
    created = sorted(job.created_ms for job in shop.ledger.state.jobs.values())
    assert all(created_ms % SECOND_MS < 10 for created_ms in created)


def test_distant_tick_comes_once_a_jump_of_the_clock_is_believed(shop: Shop) -> None:
    """The timer checks the clock repeatedly, so that a distant tick fires once a jump of the clock is accepted."""
    shop.set(cron="0 0 * * *", catch_up="latest")
    shop.machine.clock.set_wall(shop.machine.clock.wall_ms() + 30 * HOUR_MS)
    shop.pass_ms(9 * 60 * SECOND_MS)
    assert (shop.schedule.fired, shop.schedule.missed) == (0, 0)
    shop.pass_ms(3 * 60 * SECOND_MS)
    assert (shop.schedule.fired, shop.schedule.missed) == (1, 0)


def test_schedule_goes_on_by_log_time_while_the_clock_is_in_doubt(shop: Shop) -> None:
    """While the wall clock is in doubt, ticks follow log time, and no ticks of the jump fire."""
    shop.set(every_ms=60 * SECOND_MS)
    shop.machine.clock.set_wall(shop.machine.clock.wall_ms() + 192 * HOUR_MS)
    shop.pass_ms(5 * 60 * SECOND_MS + SECOND_MS)
    shop.machine.clock.set_wall(shop.machine.clock.wall_ms() - 192 * HOUR_MS)
    shop.pass_ms(10 * 60 * SECOND_MS)
    assert (shop.schedule.fired, shop.schedule.missed) == (15, 0)


def test_nothing_is_forgotten_while_the_clock_is_in_doubt(shop: Shop) -> None:
    """A finished job is not evicted while the clock is in doubt."""
    job = NewJob("one", 0, b"", extra=Extra(request_id="once"))
    shop.coordinator.call(CommandLane.SUBMIT, commands.Submit([Template("work")], [job]), lambda _: None)
    shop.coordinator.call(CommandLane.SUBMIT, commands.Cancel("one", ""), lambda _: None)
    shop.pass_ms(SECOND_MS)
    shop.machine.clock.set_wall(shop.machine.clock.wall_ms() + 192 * HOUR_MS)
    shop.pass_ms(9 * 60 * SECOND_MS)
    assert set(shop.ledger.state.jobs) == {"one"}
    shop.pass_ms(3 * 60 * SECOND_MS)
    assert set(shop.ledger.state.jobs) == set()


def test_tick_without_room_is_tried_again(shop: Shop) -> None:
    """A tick without disk space is retried, and fires for its own time once there is space."""
    shop.set(at_ms=shop.machine.clock.wall_ms() // SECOND_MS * SECOND_MS + 5 * SECOND_MS)
    shop.machine.has_room = lambda _: False
    shop.pass_ms(20 * SECOND_MS)
    assert shop.schedule.fired == 0
    shop.machine.has_room = lambda _: True
    shop.pass_ms(2 * SECOND_MS)
    (job,) = shop.ledger.state.jobs.values()
    assert shop.schedule.fired == 1
    assert job.created_ms - shop.schedule.last_tick_ms > 10 * SECOND_MS


def test_jobs_of_ticks_leave_room_for_reports(shop: Shop) -> None:
    """On a disk that is nearly full, ticks leave the reserved space for reports, as submits do."""
    shop.set(every_ms=SECOND_MS)
    shop.machine.has_room = lambda spare: spare == 0
    shop.pass_ms(5 * SECOND_MS)
    assert shop.schedule.fired == 0


def test_many_large_ticks_are_spread_over_frames(shop: Shop) -> None:
    """A schedule that catches up with large payloads spreads its ticks over several frames."""
    shop.set(every_ms=60 * SECOND_MS, payload=bytes(200_000), catch_up="all", catch_up_window_ms=HOUR_MS)
    shop.machine.clock.set_wall(shop.machine.clock.wall_ms() + HOUR_MS)
    shop.pass_ms(120 * SECOND_MS)
    assert (shop.schedule.fired, shop.schedule.missed) == (61, 0)
    assert max(shop.machine.frames) < 2_000_000
