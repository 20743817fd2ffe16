"""Graceful restarts under another clock: a stopped server does not notice that its clock is set."""

import asyncio
import random
import signal

from holdfast_lab.torture.faults.machine_faults import ClockStep, keepers
from holdfast_lab.torture.faults.targets import Pidfds, ProcessFault, called, some_time
from holdfast_lab.torture.faults.wait_until import until
from holdfast_lab.torture.ports import Arena, NotNowError

_DAY_MS = 86_400_000
STEPS_MS = (8 * _DAY_MS, -8 * _DAY_MS, 60_000)
#: Time limits of a graceful stop, and of a start.
_STOP_S = 45.0
_START_S = 45.0


class ClockRestart(ProcessFault):
    """Stops a process with a journal by TERM, sets the clock, and lets its successor start under it."""

    kind = "clock-restart"

    def lacking(self, arena: Arena) -> str:
        """Returns the reason why it cannot be fired, or an empty string."""
        reason = super().lacking(arena) or ClockStep().lacking(arena)
        return reason or ("" if keepers(arena) else f"no process of {arena.topology} keeps a journal of its own")

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Fires the fault; returns the process, the clock's error, and its duration after the start."""
        clock = arena.clock
        assert clock is not None, "see lacking"
        candidates = [process for process in keepers(arena) if process.is_ready()]
        if not candidates:
            raise NotNowError("no process with a journal is ready")
        victim, step_ms, seconds = draw.choice(candidates), draw.choice(STEPS_MS), some_time(draw)
        pid = victim.pid()
        with Pidfds([pid]) as held:
            arena.expect(pid)
            if not held.send(signal.SIGTERM):
                raise NotNowError(f"{called(victim)}: not running")
            if not await until(lambda: victim.pid() != pid, _STOP_S):
                raise NotNowError(f"{called(victim)} does not end")
        try:
            clock.step(step_ms)
            if not await until(victim.is_ready, _START_S):
                raise NotNowError(f"{called(victim)}: it was not replaced")
            await asyncio.sleep(seconds)
        finally:
            clock.step(0)
        return f"{called(victim)}, started {step_ms / 1_000:+g} s off, for {seconds:.1f} s"
