"""Processes that stand still for a while and know nothing of it afterwards.

Whoever stands still cannot notice that it should end. So each stop has a guard of its own: a process that lets them go
on if whoever has stopped them is killed.
"""

import asyncio
import random
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress

from holdfast.lab.torture.faults.targets import Held, OfProcesses, called, one, some_time
from holdfast.lab.torture.ports import Arena, Engine, NotNowError

#: Longer than any lease, session or heartbeat of an arena.
_LONG_S = (3.0, 6.0)
#: Shorter than any of them.
_SHORT_S = (0.2, 1.0)
_ENGINE_S = (0.2, 4.0)
#: It is told when everything is over; an end without a word is that of whoever would have told it.
_GUARDING = 'read -r over || kill -CONT "$@"'


class Stop(OfProcesses):
    """SIGSTOP of one process, and SIGCONT later."""

    def __init__(self, kind: str, seconds: tuple[float, float]) -> None:
        self.kind = kind
        self._seconds = seconds

    @classmethod
    def long(cls) -> "Stop":
        """Others take over what it held, and what it says afterwards comes too late."""
        return cls("stop", _LONG_S)

    @classmethod
    def short(cls) -> "Stop":
        """It keeps what it holds."""
        return cls("stop-short", _SHORT_S)

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Whom it hit, and for how long."""
        victim = one(arena, draw)
        seconds = some_time(draw, *self._seconds)
        async with stopped([victim.pid()], called(victim)):
            await asyncio.sleep(seconds)
        return f"{called(victim)}, {seconds:.1f} s"


class OfEngines:
    """A fault of what an arena stands on."""

    def lacking(self, arena: Arena) -> str:
        """Why it cannot be fired."""
        return "" if arena.engines else f"{arena.topology} stands on nothing but itself"


class EngineStop(OfEngines):
    """SIGSTOP of all processes of an engine, and SIGCONT later."""

    kind = "engine-stop"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Which it hit, and for how long."""
        engine = _running(arena, draw)
        seconds = some_time(draw, *_ENGINE_S)
        async with stopped(engine.pids(), engine.name):
            await asyncio.sleep(seconds)
        return f"{engine.name}, {seconds:.1f} s"


class EngineCrash(OfEngines):
    """An engine ends as by a power cut, and comes back."""

    kind = "engine-crash"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Which it hit."""
        engine = _running(arena, draw)
        crashing = asyncio.ensure_future(engine.crash())
        try:
            await asyncio.shield(crashing)
        except asyncio.CancelledError:
            # It is not left lying there.
            await crashing
            raise
        return engine.name


@asynccontextmanager
async def stopped(pids: Sequence[int], name: str) -> AsyncIterator[None]:
    """They stand still while the block lasts; `NotNowError` if nobody was there."""
    with Held(pid for pid in pids if pid) as held, _guarded(held.pids):
        try:
            if not held.send(signal.SIGSTOP):
                raise NotNowError(f"{name}: nobody is there")
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


def _running(arena: Arena, draw: random.Random) -> Engine:
    up = [engine for engine in arena.engines if engine.pids()]
    if not up:
        raise NotNowError("no engine is up")
    return draw.choice(up)
