"""Log time: follows the wall clock forward, never goes back, and does not follow a long jump at once.

While the wall clock is behind, log time continues at the pace of the steady clock. A wall clock that is up to an hour
ahead is followed at once. A wall clock that is further ahead is in doubt: log time continues at the steady pace, so
that no data is removed because of a wrong clock, until one of these holds:

- The machine's uptime explains the difference: this process was suspended, or the server was stopped meanwhile.
- The wall clock has stayed ahead for ten minutes of service.
- The previous process found the wall clock ahead as well, and the wall clock has not gone back since.

Each start writes a `ClockMark` for the next one; the beginning and the end of a doubt replace it.
"""

import contextlib
from collections.abc import Callable
from functools import partial

import msgspec

from holdfast.errors import HoldfastError
from holdfast.journal.disk import Disk
from holdfast.journal.whole_write import read_whole, replace_file
from holdfast.ledger.ports import Clock

MARK_NAME = "CLOCK"
#: A step between two readings counts as at most this much service; an idle coordinator reads the clock this often.
_STEP_MS_MAX = 60_000
#: How often the uptime is read while the clock is in doubt.
_UPTIME_EVERY_MS = 1_000


class ClockTrust(msgspec.Struct, frozen=True):
    """The longest jump forward that is followed at once, and the time for which a longer one is in doubt."""

    jump_ms: int = 3_600_000
    doubt_ms: int = 600_000


USUAL_TRUST = ClockTrust()


class ClockMark(msgspec.Struct, frozen=True, array_like=True):
    """The clocks at a start, or at the beginning or the end of a doubt after it.

    `boot` identifies the boot of the machine that `uptime_ms` belongs to; "" if it is unknown.
    """

    log_ms: int
    wall_ms: int
    boot: str
    uptime_ms: int


class LogClock:
    """The source of log time."""

    __slots__ = (
        "_clock",
        "_doubted_ms",
        "_looked_ms",
        "_mark",
        "_offset_ms",
        "_previous",
        "_steady_ms",
        "_trust",
        "ahead_ms",
        "confirmed_ms",
        "log_ms",
        "when_doubted",
        "when_marked",
    )

    def __init__(
        self, clock: Clock, last_ms: int, *, previous: ClockMark | None = None, trust: ClockTrust = USUAL_TRUST
    ) -> None:
        """`last_ms` is the newest time in the log, 0 if it is empty; `previous` is the mark of the previous process."""
        self._clock, self._trust, self._previous = clock, trust, previous
        self._steady_ms = clock.steady_ms()
        #: How far the wall clock is ahead while it is in doubt, else 0.
        self.ahead_ms = 0
        #: Called when a doubt begins, with `ahead_ms`, and when it ends, with 0.
        self.when_doubted: Callable[[int], None] = lambda _: None
        #: Called with each mark that replaces the one of the start.
        self.when_marked: Callable[[ClockMark], None] = lambda _: None
        #: The current doubt: its duration, the offset between the clocks, and when the uptime was read.
        self._doubted_ms = self._offset_ms = self._looked_ms = 0
        wall_ms = clock.wall_ms()
        self.log_ms = last_ms or wall_ms
        self._mark = previous
        self._follow(self.log_ms, wall_ms, 0)
        #: The jump that this start followed because the previous process had found the clock ahead too, else 0.
        self.confirmed_ms = 0
        if self.ahead_ms and previous is not None and self._is_confirmed(previous, wall_ms):
            self.confirmed_ms = self.ahead_ms
            self._believe(wall_ms)
        self._mark = _mark(clock, self.log_ms, wall_ms)

    @property
    def mark(self) -> ClockMark:
        """The mark for the next start."""
        assert self._mark is not None
        return self._mark

    def now_ms(self) -> int:
        """Returns the current log time."""
        return self.at(self._clock.steady_ms())

    def at(self, steady_ms: int) -> int:
        """Returns the current log time, for a caller that has just read the steady clock."""
        step_ms = steady_ms - self._steady_ms
        self._steady_ms = steady_ms
        wall_ms = self._clock.wall_ms()
        expected_ms = self.log_ms + step_ms
        if self.ahead_ms or wall_ms - expected_ms > self._trust.jump_ms:
            self._follow(expected_ms, wall_ms, step_ms)
        else:
            self.log_ms = max(expected_ms, wall_ms)
        return self.log_ms

    def _follow(self, expected_ms: int, wall_ms: int, step_ms: int) -> None:
        """Follows a wall clock that may be far ahead of the expected time."""
        trust, offset_ms = self._trust, wall_ms - self._steady_ms
        is_ahead = wall_ms - expected_ms > trust.jump_ms
        if is_ahead and (not self.ahead_ms or self._steady_ms - self._looked_ms >= _UPTIME_EVERY_MS):
            self._looked_ms = self._steady_ms
            expected_ms = max(expected_ms, min(wall_ms, self._by_uptime()))
            is_ahead = wall_ms - expected_ms > trust.jump_ms
        if not is_ahead:
            self._believe(max(expected_ms, wall_ms))
            return
        if not self.ahead_ms or abs(offset_ms - self._offset_ms) > trust.jump_ms:  # another jump starts a new doubt
            self._doubted_ms, self._offset_ms = 0, offset_ms
        else:
            self._doubted_ms += min(step_ms, _STEP_MS_MAX)
        if self._doubted_ms >= trust.doubt_ms:
            self._believe(wall_ms)
            return
        self.log_ms, was_doubted = expected_ms, self.ahead_ms > 0
        self.ahead_ms = wall_ms - expected_ms
        if not was_doubted:
            self._leave_mark(wall_ms)
            self.when_doubted(self.ahead_ms)

    def _believe(self, log_ms: int) -> None:
        self.log_ms, was_doubted, self.ahead_ms = log_ms, self.ahead_ms > 0, 0
        if was_doubted:
            # Otherwise the next start would use this doubt as a confirmation of its own clock.
            self._leave_mark(self._clock.wall_ms())
            self.when_doubted(0)

    def _leave_mark(self, wall_ms: int) -> None:
        self._mark = _mark(self._clock, self.log_ms, wall_ms)
        self.when_marked(self._mark)

    def _by_uptime(self) -> int:
        """Returns the log time that the machine's uptime explains; 0 if it explains nothing."""
        mark, uptime = self._mark, self._clock.uptime()
        if mark is None or uptime is None or mark.boot != uptime.boot or uptime.ms < mark.uptime_ms:
            return 0
        return mark.log_ms + uptime.ms - mark.uptime_ms

    def _is_confirmed(self, previous: ClockMark, wall_ms: int) -> bool:
        """Whether the previous process found the clock ahead too, and the clock has not gone back since."""
        return previous.wall_ms - previous.log_ms > self._trust.jump_ms and wall_ms >= previous.wall_ms


def _mark(clock: Clock, log_ms: int, wall_ms: int) -> ClockMark:
    uptime = clock.uptime()
    return ClockMark(log_ms, wall_ms, uptime.boot if uptime else "", uptime.ms if uptime else 0)


def read_mark(disk: Disk) -> ClockMark | None:
    """Reads the mark of the previous process; None if it cannot be read, which only prolongs a doubt."""
    try:
        return _decoder.decode(read_whole(disk, MARK_NAME))
    except (OSError, ValueError, RecursionError):  # invalid UTF-8 and msgspec's errors are ValueErrors
        return None


def write_mark(disk: Disk, mark: ClockMark) -> None:
    """Writes a mark; a failed write only prolongs a later doubt."""
    with contextlib.suppress(OSError, HoldfastError):
        replace_file(disk, MARK_NAME, _encoder.encode(mark))


def leave_marks(disk: Disk, clock: LogClock) -> None:
    """Writes the mark of this start, and a new one whenever a doubt begins or ends."""
    write_mark(disk, clock.mark)
    clock.when_marked = partial(write_mark, disk)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ClockMark)
