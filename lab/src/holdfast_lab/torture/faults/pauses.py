"""Processes that are stopped for a while by SIGSTOP.

A stopped process cannot notice that its parent died. So each stop has a guard: a child process that continues the
stopped ones if the lab is killed.
"""

import asyncio
import random
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress

from holdfast_lab.torture.faults.targets import Pidfds, ProcessFault, TargetedFault, called, one, some_time
from holdfast_lab.torture.ports import Arena, Engine, Hideable, NotNowError

#: Longer than any lease, session or heartbeat of an arena.
_LONG_S = (3.0, 6.0)
#: Shorter than any of them.
_SHORT_S = (0.2, 1.0)
_ENGINE_S = (0.2, 4.0)
#: Longer than a gateway waits before it reports the outage to its clients.
_AWAY_S = (6.0, 10.0)
#: The guard reads a line at the regular end; an end of file without it means that the lab was killed.
_GUARDING = 'read -r over || kill -CONT "$@"'


class Stop(ProcessFault):
    """SIGSTOP of one process, and SIGCONT later."""

    def __init__(self, kind: str, seconds: tuple[float, float]) -> None:
        self.kind = kind
        self._seconds = seconds

    @classmethod
    def long(cls) -> "Stop":
        """A stop longer than any lease: other workers take over its jobs, and its reports come too late."""
        return cls("stop", _LONG_S)

    @classmethod
    def short(cls) -> "Stop":
        """A stop shorter than any lease: the process keeps its jobs."""
        return cls("stop-short", _SHORT_S)

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Fires the fault; returns the process that it hit, and the duration."""
        victim = one(arena, draw, self.aim)
        seconds = some_time(draw, *self._seconds)
        async with stopped([victim.pid()], called(victim)):
            await asyncio.sleep(seconds)
        return f"{called(victim)}, {seconds:.1f} s"


class EngineFault(TargetedFault):
    """A fault of the arena's engines."""

    def lacking(self, arena: Arena) -> str:
        """Returns the reason why it cannot be fired, or an empty string."""
        return "" if arena.engines else f"{arena.topology} has no engine"


class EngineStop(EngineFault):
    """SIGSTOP of all processes of an engine, and SIGCONT later."""

    kind = "engine-stop"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Fires the fault; returns the engine that it hit, and the duration."""
        engine = _running(arena, draw, self.aim)
        seconds = some_time(draw, *_ENGINE_S)
        async with stopped(engine.pids(), engine.name):
            await asyncio.sleep(seconds)
        return f"{engine.name}, {seconds:.1f} s"


class EngineCrash(EngineFault):
    """An engine crashes as by a power cut, and restarts."""

    kind = "engine-crash"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Fires the fault; returns the engine that it hit."""
        engine = _running(arena, draw, self.aim)
        crashing = asyncio.ensure_future(engine.crash())
        try:
            await asyncio.shield(crashing)
        except asyncio.CancelledError:
            # Do not leave the engine down.
            await crashing
            raise
        return engine.name


@asynccontextmanager
async def stopped(pids: Sequence[int], name: str) -> AsyncIterator[None]:
    """Stops the processes while the block runs; raises `NotNowError` if none was running."""
    with Pidfds(pid for pid in pids if pid) as held, _guarded(held.pids):
        try:
            if not held.send(signal.SIGSTOP):
                raise NotNowError(f"{name}: not running")
            yield
        finally:
            held.send(signal.SIGCONT)


@contextmanager
def _guarded(pids: Sequence[int]) -> Iterator[None]:
    command = ["/bin/sh", "-c", _GUARDING, "guard", *map(str, pids)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True, bufsize=0
    ) as guard:
        assert guard.stdin is not None
        try:
            yield
        finally:
            with suppress(BrokenPipeError):
                guard.stdin.write(b"over\n")


class EngineAway(EngineFault):
    """Connections to an engine are cut, and new ones are refused for a while."""

    kind = "engine-away"
    seconds = _AWAY_S

    def lacking(self, arena: Arena) -> str:
        """Returns the reason why it cannot be fired, or an empty string."""
        can_be_hidden = any(isinstance(engine, Hideable) for engine in arena.engines)
        return super().lacking(arena) or ("" if can_be_hidden else f"no engine of {arena.topology} can be hidden")

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Fires the fault; returns the engine that it hit, and the duration."""
        engine = _running(arena, draw, self.aim)
        assert isinstance(engine, Hideable), "see lacking"
        seconds = some_time(draw, *self.seconds)
        async with engine.hidden():
            await asyncio.sleep(seconds)
        return f"{engine.name}, {seconds:.1f} s"


def _running(arena: Arena, draw: random.Random, name: str) -> Engine:
    up = [engine for engine in arena.engines if engine.pids() and name in {"", engine.name}]
    if not up:
        raise NotNowError("no engine is up")
    return draw.choice(up)
