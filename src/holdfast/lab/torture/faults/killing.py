"""Processes killed at any instant: one, one and then its successor, many at once."""

import random
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress

from holdfast.lab.torture.faults import watching
from holdfast.lab.torture.faults.targets import Held, OfProcesses, called, living, one, turn
from holdfast.lab.torture.ports import Arena, NotNowError, Process

#: How long a successor is waited for; longer, and whoever judges the run has to find out why.
_SUCCESSOR_S = 20.0
#: How often the next fault waits until whoever was killed has been replaced.
_PATIENCE = 0.7
#: A program takes so long to start, on a quick machine and on a slow one.
_STARTING_S = 1.0
_AGAIN_MAX = 3
_TWO_ROLES = 0.3


class Kill(OfProcesses):
    """kill -9 of one process."""

    kind = "kill"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Whom it hit."""
        victim = one(arena, draw)
        await kill(arena, [victim])
        if draw.random() < _PATIENCE:
            await until(victim.is_ready)
        return called(victim)


class KillStarting(OfProcesses):
    """kill -9 of one process, and again while its successor starts."""

    kind = "kill-starting"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Whom it hit, and how often."""
        victim = one(arena, draw)
        times = 1 + draw.randint(1, _AGAIN_MAX)
        await kill(arena, [victim])
        killed = 1
        while killed < times:
            if not await until(lambda: victim.pid() != 0):
                return f"{called(victim)}, {killed} times, and nobody came after it"
            await until(victim.is_ready, within_s=draw.random() * _STARTING_S)
            with suppress(NotNowError):  # somebody else was quicker, and there will be another one
                await kill(arena, [victim])
                killed += 1
        await until(victim.is_ready)
        return f"{called(victim)}, {killed} times"


class KillMany(OfProcesses):
    """kill -9 of everybody of a role, or of two, at once."""

    kind = "kill-many"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Whom it hit."""
        everybody = living(arena)
        roles = {turn(everybody, draw)}
        if draw.random() < _TWO_ROLES:
            roles.add(draw.choice(everybody).role)
        victims = [process for process in everybody if process.role in roles]
        victims = await kill(arena, victims)
        if draw.random() < _PATIENCE:
            await until(lambda: all(victim.is_ready() for victim in victims))
        return ", ".join(map(called, victims))


async def kill(arena: Arena, victims: Sequence[Process]) -> list[Process]:
    """Those whom it hit, once they are gone; `NotNowError` if nobody was there."""
    pids = {pid: victim for victim in victims if (pid := victim.pid())}
    with Held(pids) as held:
        for pid in pids:
            arena.expect(pid)
        hit = [pids[pid] for pid in held.send(signal.SIGKILL)]
        if not hit:
            raise NotNowError(f"{', '.join(map(called, victims))}: nobody is there")
        await until(lambda: all(victim.pid() != pid for pid, victim in pids.items()))
    return hit


async def until(is_so: Callable[[], bool], within_s: float = _SUCCESSOR_S) -> bool:
    """Whether it came to be so in the time that a successor has."""
    return await watching.until(is_so, within_s)
