"""One run of a simulated process: how it runs, the ports of its coordinator, and how it ends.

Invariant: after its end, nothing that it had planned runs any more. A stopped (SIGSTOP) process runs nothing until it
continues; then it runs its pending turns, reads arrived messages, and checks its timers, in this order.
"""

import random
from collections.abc import Callable

from holdfast.journal.errors import JournalFailedError
from holdfast_lab.simulation.disk import SimulatedCrash
from holdfast_lab.simulation.scheduler import ARRIVED, DUE, RUNNING, Call, ScheduledCall, SimulatedScheduler

#: Far longer than usual on a real machine; the coordinator decides what counts as a stall.
_SYNC_US = (30, 4_000)
_TURN_US = (1, 40)
_TIMER_US = (0, 999)


class SimulatedProcess:
    """Runs the calls of one process; `on_crash` is called at a power cut, `on_fatal` when the program gives up."""

    def __init__(
        self, clock: SimulatedScheduler, rng: random.Random, on_crash: Call, on_fatal: Callable[[BaseException], None]
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._on_crash = on_crash
        self._on_fatal = on_fatal
        self.is_alive = True
        self.is_failing = False
        self.stalled_until_us = 0
        self.stalls = 0
        self.stopped_ms = 0
        self.slow_sync_us = 0

    # -- running

    def enter(self, delay_us: int, kind: str, call: Call, phase: int = ARRIVED) -> ScheduledCall:
        """Plans a call inside this process."""
        planned = self._clock.after(delay_us, kind, lambda: self._run(planned, kind, call, phase), phase)
        return planned

    def _run(self, planned: ScheduledCall, kind: str, call: Call, phase: int) -> None:
        if not self.is_alive or planned.call is None:
            return
        wait_us = self.stalled_until_us - self._clock.now_us
        if wait_us > 0:
            self._clock.after(wait_us, kind, lambda: self._run(planned, kind, call, phase), phase)
            return
        self.guard(call)

    def guard(self, call: Call) -> None:
        """Makes a call of the production code, in which the power may go."""
        try:
            call()
        except SimulatedCrash:
            if self.is_alive:
                self._on_crash()
        except JournalFailedError:
            # Between a failed write and its notification, the journal refuses everything; the notification is fatal.
            if self.is_alive and not self.is_failing:
                raise

    def here(self, kind: str, call: Call) -> None:
        """Handles an arrival now, or when the process continues."""
        wait_us = self.stalled_until_us - self._clock.now_us
        if wait_us > 0:
            self.enter(wait_us, kind, call)
        elif self.is_alive:
            self.guard(call)

    def stall(self, for_us: int) -> None:
        """Stops the process for a while."""
        self.stalls += 1
        self.stopped_ms += -(-for_us // 1_000)
        self.stalled_until_us = self._clock.now_us + for_us

    # -- the ports of the coordinator

    def soon(self, call: Call) -> None:
        """Runs the call in the next round."""
        self.enter(self._rng.randint(*_TURN_US), "turn", call, RUNNING)

    def later(self, delay_ms: int, call: Call) -> ScheduledCall:
        """Runs the call after the delay, and a little more."""
        return self.enter(delay_ms * 1_000 + self._rng.randint(*_TIMER_US), "timer", call, DUE)

    def run(self, work: Callable[[], int], done: Callable[[int | BaseException], None], *, is_lone: bool) -> None:
        """Writes at the start or at the end of a sync's duration; for a lone caller sometimes at once."""
        if is_lone and self._rng.random() < 0.5:  # noqa: PLR2004 - a coin
            done(self._written(work))
            return
        takes_us = self._rng.randint(*_SYNC_US) + self.slow_sync_us
        self.slow_sync_us = 0
        if self._rng.random() < 0.5:  # noqa: PLR2004 - a coin
            self.enter(0, "write", lambda: self._write_then_tell(work, done, takes_us), RUNNING)
        else:
            self.enter(takes_us, "write", lambda: self._write_then_tell(work, done, 0))

    def _write_then_tell(
        self, work: Callable[[], int], done: Callable[[int | BaseException], None], takes_us: int
    ) -> None:
        result = self._written(work)
        self.enter(takes_us, "synced", lambda: done(result))

    def _written(self, work: Callable[[], int]) -> int | BaseException:
        try:
            return work()
        except JournalFailedError as error:
            self.is_failing = True
            return error

    def fatal(self, error: BaseException) -> None:
        """Stops the coordinator at once; the rest of its turn has no effect."""
        if self.is_alive:
            self.is_alive = False
            self._on_fatal(error)


class DeletionThread:
    """The thread that deletes files: here it does so at once, so that its faults hit the coordinator's turns."""

    def run(self, work: Callable[[], int], done: Callable[[int | BaseException], None], *, is_lone: bool) -> None:
        """Does the work at once; its exceptions are not caught."""
        del is_lone
        done(work())
