"""Checks log time against an independent record: one clock reading causes no long step forward.

A step of more than an hour beyond the monotonic clock is correct only if the wall clock has shown that time for the
whole period of doubt, or had shown such a time to the previous process.
"""

from holdfast.core.model import Now
from holdfast.ledger.coordinator import Coordinator
from holdfast_lab.simulation.scheduler import SimulatedScheduler
from holdfast_lab.simulation.violation import require

_JUMP_MS = 3_600_000


class ClockRecord:
    """The known state of the clocks over all runs of the coordinator's process."""

    def __init__(self) -> None:
        self.log_ms = self.steady_ms = 0
        self.offset_ms = self.since_ms = 0
        #: Whether the wall clock was far ahead of the log at the last check, and at the end of the previous process.
        self.was_ahead = self.was_ahead_before = False


class ClockWatch:
    """A follower of the coordinator of one process run."""

    is_watching = False

    def __init__(self, coordinator: Coordinator, clock: SimulatedScheduler, record: ClockRecord, doubt_ms: int) -> None:
        self._clock, self._record, self._doubt_ms = clock, record, doubt_ms
        self._started_ms = clock.steady_ms()
        record.was_ahead_before = record.was_ahead
        self._look(coordinator.time.log.log_ms)
        coordinator.followers.append(self)

    def follow(self, now: Now) -> None:
        """Compares the step of log time with the monotonic clock."""
        self._look(now.log_ms)

    def _look(self, log_ms: int) -> None:
        record, steady_ms = self._record, self._clock.steady_ms()
        if abs(self._clock.wall_offset_ms - record.offset_ms) > _JUMP_MS:
            record.offset_ms, record.since_ms = self._clock.wall_offset_ms, steady_ms
        ahead_ms = log_ms - record.log_ms - (steady_ms - record.steady_ms)
        if record.log_ms and ahead_ms > _JUMP_MS:
            shown_ms = steady_ms - max(record.since_ms, self._started_ms)
            require(
                shown_ms >= self._doubt_ms or record.was_ahead_before,
                f"log time went {ahead_ms} ms ahead after the wall clock had shown that for {shown_ms} ms",
            )
        record.log_ms, record.steady_ms = log_ms, steady_ms
        record.was_ahead = self._clock.wall_ms() - log_ms > _JUMP_MS
