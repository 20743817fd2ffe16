"""What processes stand on: a disk that is full, a disk that is slow, a clock that somebody sets."""

import asyncio
import os
import random
import stat
from contextlib import suppress
from pathlib import Path

from holdfast.lab.torture.faults import tracing
from holdfast.lab.torture.faults.targets import SECONDS_MAX, SECONDS_MIN, called, some_time
from holdfast.lab.torture.faults.watching import felt
from holdfast.lab.torture.ports import Arena, Disk, NotNowError, Process

#: Longer than several leases.
_LASTING_S = (20.0, 40.0)
_SYNC_S = (0.01, 0.6)
_TOP_UP_S = 0.1
#: Nobody feels a full disk before what was reserved on it is used up.
_USED_UP_S = 60.0
#: A tracer takes a moment to come and go: less would hardly be noticed.
_SLOW_S = (0.5, 6.0)
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
STEPS_MS = (_HOUR_MS, -_HOUR_MS, _DAY_MS, -_DAY_MS, 3_000, -3_000, 700, -700)
#: What processes write there is no journal.
_NO_JOURNALS = ("logs", "records")


class FullDisk:
    """No room is left for a while."""

    def __init__(self, kind: str, seconds: tuple[float, float]) -> None:
        self.kind = kind
        self.seconds = seconds

    @classmethod
    def short(cls) -> "FullDisk":
        """Soon there is room again."""
        return cls("full-disk", (SECONDS_MIN, SECONDS_MAX))

    @classmethod
    def lasting(cls) -> "FullDisk":
        """What runs when it begins has long ended before there is room again."""
        return cls("full-disk-long", _LASTING_S)

    def lacking(self, arena: Arena) -> str:
        """Why it cannot be fired."""
        if arena.disk is None:
            return f"{arena.topology} has no disk that is full soon enough to be felt"
        return arena.disk.no_filling

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """For how long."""
        disk = arena.disk
        assert disk is not None, "see lacking"
        seconds = some_time(draw, *self.seconds)
        before = arena.no_room()
        try:
            disk.fill()
            filling = asyncio.create_task(_top_up(disk))
            try:
                await felt(arena.no_room, before, seconds, "the disk", _USED_UP_S)
            finally:
                filling.cancel()
                await asyncio.wait([filling])
        finally:
            disk.free()
        return f"full for {seconds:.1f} s, felt {arena.no_room() - before} times"


async def _top_up(disk: Disk) -> None:
    """Again and again: whoever deletes something makes room."""
    while True:
        await asyncio.sleep(_TOP_UP_S)
        with suppress(NotNowError):  # it was full, and will be again
            disk.fill()


class SlowDisk:
    """The syncs of one process take long for a while."""

    kind = "slow-disk"

    def lacking(self, arena: Arena) -> str:
        """Why it cannot be fired."""
        if reason := tracing.lacking():
            return reason
        return "" if arena.processes() or arena.engines else "the arena has no processes"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Whose, by how much, and for how long."""
        name, pids = draw.choice(_writers(arena))
        seconds, delay_s = some_time(draw, *_SLOW_S), some_time(draw, *_SYNC_S)
        async with tracing.slow_syncs(pids, delay_s) as held_up:
            await felt(held_up, 0, seconds, name)
            count = held_up()
        return f"{name}, {seconds:.1f} s, {delay_s * 1_000:.0f} ms each of {count} syncs"


class ClockStep:
    """The wall clock is set, and set right again."""

    kind = "clock"

    def lacking(self, arena: Arena) -> str:
        """Why it cannot be fired."""
        return "" if arena.clock is not None else f"the clock of {arena.topology} cannot be stepped"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """By how much, and for how long."""
        clock = arena.clock
        assert clock is not None, "see lacking"
        step_ms, seconds = draw.choice(STEPS_MS), some_time(draw)
        try:
            clock.step(step_ms)
            await asyncio.sleep(seconds)
        finally:
            clock.step(0)
        return f"by {step_ms / 1_000:+g} s for {seconds:.1f} s"


def keepers(arena: Arena) -> list[Process]:
    """Processes that have data of the arena open to write it."""
    return [process for process in arena.processes() if process.pid() and _writes_below(process.pid(), arena.folder)]


def _writers(arena: Arena) -> list[tuple[str, list[int]]]:
    """Who has data of the arena open to write it, and every engine that is up."""
    journals = [(called(process), [process.pid()]) for process in keepers(arena)]
    found = [*journals, *((engine.name, pids) for engine in arena.engines if (pids := engine.pids()))]
    if not found:
        raise NotNowError("nobody writes anything to a disk")
    return found


def _writes_below(pid: int, folder: Path) -> bool:
    home = folder.resolve()
    try:
        names = [entry.name for entry in os.scandir(f"/proc/{pid}/fd")]
    except OSError:
        return False
    return any(_is_journal(Path(f"/proc/{pid}/fd/{name}"), home) for name in names)


def _is_journal(link: Path, home: Path) -> bool:
    try:
        # A link of an open descriptor has the permissions that it was opened with.
        is_written = bool(link.lstat().st_mode & stat.S_IWUSR)
        path = Path(link.readlink())
        return is_written and path.is_relative_to(home) and path.relative_to(home).parts[0] not in _NO_JOURNALS
    except (OSError, IndexError):
        return False
