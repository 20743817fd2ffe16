"""The two times of a command, from the two clocks of a machine.

Log time follows the wall clock forward, however it jumps, and never goes back: while the wall clock is behind, log
time runs on at the steady clock's pace. Served time is steady time during which the coordinator was listening: a
step longer than `STALL_MS` means that the process was stopped or starved, and what exceeds it does not count, so
that a pause of the coordinator expires nobody's lease.
"""

from holdfast.coordinator.ports import Clock
from holdfast.core.model import Now

STALL_MS = 250


class Timekeeper:
    """Gives each command its `Now`."""

    __slots__ = ("_clock", "_log_ms", "_served_ms", "_steady_ms")

    def __init__(self, clock: Clock, last_log_ms: int) -> None:
        """`last_log_ms` is the newest time in the log; this process's times start there or later."""
        self._clock = clock
        self._steady_ms = clock.steady_ms()
        self._log_ms = max(last_log_ms, clock.wall_ms())
        self._served_ms = 0

    def now(self) -> Now:
        """The time of the command at hand; calling it is what counts as listening."""
        steady_ms = self._clock.steady_ms()
        step_ms = steady_ms - self._steady_ms
        self._steady_ms = steady_ms
        self._log_ms = max(self._log_ms + step_ms, self._clock.wall_ms())
        self._served_ms += min(step_ms, STALL_MS)
        return Now(self._log_ms, self._served_ms)
