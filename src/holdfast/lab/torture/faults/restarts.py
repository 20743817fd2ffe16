"""Restarts in good order under another clock: a server that is stopped notices nothing of what happens to the clock."""

import asyncio
import random
import signal

from holdfast.lab.torture.faults.surroundings import ClockStep, keepers
from holdfast.lab.torture.faults.targets import Held, OfProcesses, called, some_time
from holdfast.lab.torture.faults.watching import until
from holdfast.lab.torture.ports import Arena, NotNowError

_DAY_MS = 86_400_000
STEPS_MS = (8 * _DAY_MS, -8 * _DAY_MS, 60_000)
#: Whoever is stopped in good order may take so long for it, and so long to start again.
_STOP_S = 45.0
_START_S = 45.0


class ClockRestart(OfProcesses):
    """A process that keeps a journal is stopped by TERM, the clock is set, and its successor starts under it."""

    kind = "clock-restart"

    def lacking(self, arena: Arena) -> str:
        """Why it cannot be fired."""
        reason = super().lacking(arena) or ClockStep().lacking(arena)
        return reason or ("" if keepers(arena) else f"no process of {arena.topology} keeps a journal of its own")

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Whom it hit, by how much the clock was wrong, and for how long after the start."""
        clock = arena.clock
        assert clock is not None, "see lacking"
        candidates = [process for process in keepers(arena) if process.is_ready()]
        if not candidates:
            raise NotNowError("nobody who keeps a journal is ready")
        victim, step_ms, seconds = draw.choice(candidates), draw.choice(STEPS_MS), some_time(draw)
        pid = victim.pid()
        with Held([pid]) as held:
            arena.expect(pid)
            if not held.send(signal.SIGTERM):
                raise NotNowError(f"{called(victim)}: nobody is there")
            if not await until(lambda: victim.pid() != pid, _STOP_S):
                raise NotNowError(f"{called(victim)} does not end")
        try:
            clock.step(step_ms)
            if not await until(victim.is_ready, _START_S):
                raise NotNowError(f"{called(victim)}: nobody came after it")
            await asyncio.sleep(seconds)
        finally:
            clock.step(0)
        return f"{called(victim)}, started {step_ms / 1_000:+g} s off, for {seconds:.1f} s"
