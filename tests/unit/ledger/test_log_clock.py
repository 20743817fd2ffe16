"""Log time: small jumps of the wall clock are followed, long ones are doubted first."""

import random

import pytest

from holdfast.clock import SystemClock, Uptime
from holdfast.journal.whole_write import replace_file
from holdfast.ledger.log_clock import (
    MARK_NAME,
    ClockMark,
    ClockTrust,
    LogClock,
    leave_marks,
    read_mark,
    write_mark,
)
from holdfast_lab.simulation.disk import SimDisk

SECOND_MS, MINUTE_MS, HOUR_MS = 1_000, 60_000, 3_600_000
DAY_MS = 24 * HOUR_MS
START_MS = 1_800_000_000_000


class Clocks:
    """Three clocks that a test moves."""

    def __init__(self) -> None:
        self.offset_ms = 0
        self.passed_ms = 0
        self.suspended_ms = 0
        self.boot = "first"
        self.knows_uptime = True

    def wall_ms(self) -> int:
        return START_MS + self.passed_ms + self.suspended_ms + self.offset_ms

    def steady_ms(self) -> int:
        return self.passed_ms

    def uptime(self) -> Uptime | None:
        return Uptime(self.boot, self.passed_ms + self.suspended_ms) if self.knows_uptime else None

    def serve(self, log: LogClock, ms: int) -> int:
        """Advances the time in steps of a second; returns the log time at the end."""
        for _ in range(ms // SECOND_MS):
            self.passed_ms += SECOND_MS
            log.now_ms()
        return log.now_ms()


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def test_small_jump_is_followed_at_once(clocks: Clocks) -> None:
    """Log time follows a jump of up to an hour at once."""
    log = LogClock(clocks, 0)
    clocks.offset_ms = HOUR_MS
    assert log.now_ms() == START_MS + HOUR_MS
    assert log.ahead_ms == 0


def test_clock_that_goes_back_leaves_log_time_at_the_steady_pace(clocks: Clocks) -> None:
    """If the wall clock goes back, log time continues at the pace of the steady clock."""
    log = LogClock(clocks, 0)
    clocks.offset_ms = -DAY_MS
    assert clocks.serve(log, MINUTE_MS) == START_MS + MINUTE_MS


def test_long_jump_for_one_reading_moves_nothing(clocks: Clocks) -> None:
    """A wall clock that is eight days ahead for one reading does not move log time."""
    log = LogClock(clocks, 0)
    clocks.offset_ms = 8 * DAY_MS
    assert log.now_ms() == START_MS
    assert log.ahead_ms == 8 * DAY_MS
    clocks.offset_ms = 0
    assert clocks.serve(log, MINUTE_MS) == START_MS + MINUTE_MS
    assert log.ahead_ms == 0


def test_long_jump_is_believed_after_ten_minutes_of_service(clocks: Clocks) -> None:
    """Log time follows a long jump after ten minutes of service, and notifies at the start and end of the doubt."""
    log = LogClock(clocks, 0)
    told: list[int] = []
    log.when_doubted = told.append
    clocks.offset_ms = 8 * DAY_MS
    assert clocks.serve(log, 9 * MINUTE_MS) == START_MS + 9 * MINUTE_MS
    assert clocks.serve(log, 2 * MINUTE_MS) == START_MS + 11 * MINUTE_MS + 8 * DAY_MS
    assert [bool(ahead_ms) for ahead_ms in told] == [True, False]


def test_another_jump_begins_another_doubt(clocks: Clocks) -> None:
    """A second jump restarts the ten minutes."""
    log = LogClock(clocks, 0)
    clocks.offset_ms = DAY_MS
    clocks.serve(log, 8 * MINUTE_MS)
    clocks.offset_ms = 9 * DAY_MS
    assert clocks.serve(log, 8 * MINUTE_MS) == START_MS + 16 * MINUTE_MS
    assert clocks.serve(log, 3 * MINUTE_MS) > START_MS + 9 * DAY_MS


def test_time_in_which_the_process_was_stopped_is_no_service(clocks: Clocks) -> None:
    """A day in which the process was stopped does not count as service."""
    log = LogClock(clocks, 0)
    clocks.offset_ms = 8 * DAY_MS
    log.now_ms()
    clocks.passed_ms += DAY_MS
    assert log.now_ms() == START_MS + DAY_MS


def test_suspended_machine_is_believed_by_its_uptime(clocks: Clocks) -> None:
    """After a suspend log time follows the uptime, because the steady clock stands still meanwhile."""
    log = LogClock(clocks, 0)
    clocks.suspended_ms = 9 * HOUR_MS
    assert log.now_ms() == START_MS + 9 * HOUR_MS
    clocks.offset_ms = 8 * DAY_MS  # the uptime does not confirm more than its own length
    assert log.now_ms() == START_MS + 9 * HOUR_MS


def test_stop_of_days_is_believed_by_the_uptime(clocks: Clocks) -> None:
    """If the machine has not rebooted, its uptime confirms how long the server was stopped."""
    mark = LogClock(clocks, 0).mark
    clocks.passed_ms += 3 * DAY_MS
    log = LogClock(clocks, START_MS + HOUR_MS, previous=mark)
    assert (log.now_ms(), log.ahead_ms) == (START_MS + 3 * DAY_MS, 0)


@pytest.mark.parametrize("knows_uptime", [True, False])
def test_later_start_confirms(clocks: Clocks, *, knows_uptime: bool) -> None:
    """After a reboot the first start doubts a long jump, and the next start accepts it."""
    clocks.knows_uptime = knows_uptime
    mark = LogClock(clocks, 0).mark
    clocks.boot, clocks.offset_ms = "second", 8 * DAY_MS
    first = LogClock(clocks, START_MS, previous=mark)
    assert (first.now_ms(), first.ahead_ms) == (START_MS, 8 * DAY_MS)
    clocks.passed_ms += MINUTE_MS
    second = LogClock(clocks, first.now_ms(), previous=first.mark)
    assert (second.now_ms(), second.ahead_ms) == (START_MS + MINUTE_MS + 8 * DAY_MS, 0)


def test_next_start_confirms_a_clock_jump_seen_before(clocks: Clocks) -> None:
    """A jump that was seen while a server ran is confirmed by the next start, which reports it."""
    log = LogClock(clocks, 0)
    left: list[ClockMark] = []
    log.when_marked = left.append
    clocks.offset_ms = 8 * DAY_MS
    log.now_ms()
    again = LogClock(clocks, log.log_ms, previous=left[-1])
    assert (again.now_ms(), again.ahead_ms, again.confirmed_ms) == (START_MS + 8 * DAY_MS, 0, 8 * DAY_MS)


def test_later_start_with_the_right_clock_confirms_nothing(clocks: Clocks) -> None:
    """One start with a wrong clock has no effect on the next start with the right clock."""
    mark = LogClock(clocks, 0).mark
    clocks.offset_ms = 8 * DAY_MS
    wrong = LogClock(clocks, START_MS, previous=mark)
    clocks.offset_ms, clocks.passed_ms = 0, MINUTE_MS
    assert LogClock(clocks, START_MS, previous=wrong.mark).now_ms() == START_MS + MINUTE_MS


def test_doubt_that_has_ended_confirms_no_later_one(clocks: Clocks) -> None:
    """A doubt that ended while the server ran does not confirm the same wrong clock at the next start."""
    disk = SimDisk(random.Random(1))
    log = LogClock(clocks, 0)
    clocks.offset_ms = 8 * DAY_MS
    second = LogClock(clocks, log.log_ms, previous=log.mark)
    leave_marks(disk, second)
    assert second.ahead_ms
    clocks.offset_ms = 0
    clocks.serve(second, MINUTE_MS)
    clocks.offset_ms = 8 * DAY_MS
    third = LogClock(clocks, second.log_ms, previous=read_mark(disk))
    assert third.ahead_ms
    assert third.log_ms < START_MS + DAY_MS


def test_mark_is_kept_and_one_that_cannot_be_read_is_none() -> None:
    """A mark is stored, and a disk without space for it causes no error."""
    disk = SimDisk(random.Random(1))
    assert read_mark(disk) is None
    mark = ClockMark(1, 2, "boot", 3)
    write_mark(disk, mark)
    assert read_mark(disk) == mark
    disk.faults.free_bytes = 0
    write_mark(disk, ClockMark(4, 5, "boot", 6))
    assert read_mark(disk) in (mark, None)


@pytest.mark.parametrize("data", [b"", b"[1,2", b'[1,2,"\xff",3]', b"[" * 10_000, b'{"a":1}'])
def test_damaged_mark_is_no_mark(data: bytes) -> None:
    """A server starts whatever the mark file contains."""
    disk = SimDisk(random.Random(1))
    replace_file(disk, MARK_NAME, data)
    assert read_mark(disk) is None


def test_uptime_of_this_machine_goes_forward() -> None:
    """The system names its boot, and its uptime grows."""
    first, second = SystemClock().uptime(), SystemClock().uptime()
    if first is None or second is None:
        pytest.skip("the system tells no uptime")
    assert first.boot == second.boot
    assert first.ms <= second.ms


def test_trust_is_an_hour_and_ten_minutes() -> None:
    """The default limits of the clock are those of the documents."""
    assert ClockTrust() == ClockTrust(HOUR_MS, 10 * MINUTE_MS)
