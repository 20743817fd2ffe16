"""The two times of a command: log time and served time.

Log time comes from `LogClock`. Served time is steady time during which the coordinator was running. A step longer than
`STALL_MS` means that the process was stopped or starved; the excess does not count, so that a pause of the coordinator
expires no lease.
"""

from holdfast.core.model import Now
from holdfast.ledger.log_clock import USUAL_TRUST, ClockMark, ClockTrust, LogClock
from holdfast.ledger.ports import Clock

STALL_MS = 250


class CommandClock:
    """Gives each command its `Now`."""

    __slots__ = ("_clock", "_served_ms", "_steady_ms", "log")

    def __init__(
        self,
        clock: Clock,
        last_log_ms: int,
        *,
        previous: ClockMark | None = None,
        trust: ClockTrust = USUAL_TRUST,
    ) -> None:
        """`last_log_ms` is the newest time in the log; the times of this process start there or later."""
        self._clock = clock
        self._steady_ms = clock.steady_ms()
        self.log = LogClock(clock, last_log_ms, previous=previous, trust=trust)
        self._served_ms = 0

    def now(self) -> Now:
        """Returns the time of the current command; the time between calls counts as served, up to `STALL_MS` each."""
        served_ms = self.served_ms()
        return Now(self.log.at(self._steady_ms), served_ms)

    def served_ms(self) -> int:
        """Returns the served time only, which is cheaper than `now`."""
        steady_ms = self._clock.steady_ms()
        self._served_ms += min(steady_ms - self._steady_ms, STALL_MS)
        self._steady_ms = steady_ms
        return self._served_ms
