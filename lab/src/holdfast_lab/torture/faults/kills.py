"""Kills at any instant: of one process, of a process and its successors, of many at once."""

import random
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress

from holdfast_lab.torture.faults import wait_until
from holdfast_lab.torture.faults.targets import Pidfds, ProcessFault, called, living, one, turn
from holdfast_lab.torture.ports import Arena, ArenaProcess, NotNowError

#: How long to wait for a successor; a longer absence is left to the checker.
_SUCCESSOR_S = 20.0
#: How often the next fault waits until the killed process is replaced.
_PATIENCE = 0.7
#: The time in which a program starts on most machines.
_STARTING_S = 1.0
_AGAIN_MAX = 3
_TWO_ROLES = 0.3


class KillFault(ProcessFault):
    """SIGKILL of one process."""

    kind = "kill"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Fires the fault; returns the process that it hit."""
        victim = one(arena, draw, self.aim)
        await kill(arena, [victim])
        if draw.random() < _PATIENCE:
            await until(victim.is_ready)
        return called(victim)


class KillStarting(ProcessFault):
    """SIGKILL of one process, and of its successors while they start."""

    kind = "kill-starting"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Fires the fault; returns the process that it hit, and how often."""
        victim = one(arena, draw, self.aim)
        times = 1 + draw.randint(1, _AGAIN_MAX)
        await kill(arena, [victim])
        killed = 1
        while killed < times:
            if not await until(lambda: victim.pid() != 0):
                return f"{called(victim)}, {killed} times, and it was not replaced"
            await until(victim.is_ready, within_s=draw.random() * _STARTING_S)
            with suppress(NotNowError):  # it died meanwhile, and will be replaced
                await kill(arena, [victim])
                killed += 1
        await until(victim.is_ready)
        return f"{called(victim)}, {killed} times"


class KillMany(ProcessFault):
    """SIGKILL of all processes of one or two roles at once."""

    kind = "kill-many"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Fires the fault; returns the processes that it hit."""
        everybody = living(arena)
        roles = {turn(everybody, draw)}
        if draw.random() < _TWO_ROLES:
            roles.add(draw.choice(everybody).role)
        victims = [process for process in everybody if process.role in roles]
        victims = await kill(arena, victims)
        if draw.random() < _PATIENCE:
            await until(lambda: all(victim.is_ready() for victim in victims))
        return ", ".join(map(called, victims))


async def kill(arena: Arena, victims: Sequence[ArenaProcess]) -> list[ArenaProcess]:
    """Kills processes; returns those that it hit, once they are gone. Raises `NotNowError` if none was running."""
    pids = {pid: victim for victim in victims if (pid := victim.pid())}
    with Pidfds(pids) as held:
        for pid in pids:
            arena.expect(pid)
        hit = [pids[pid] for pid in held.send(signal.SIGKILL)]
        if not hit:
            raise NotNowError(f"{', '.join(map(called, victims))}: not running")
        await until(lambda: all(victim.pid() != pid for pid, victim in pids.items()))
    return hit


async def until(is_so: Callable[[], bool], within_s: float = _SUCCESSOR_S) -> bool:
    """Waits until the condition holds, by default as long as for a successor; returns whether it does."""
    return await wait_until.until(is_so, within_s)
