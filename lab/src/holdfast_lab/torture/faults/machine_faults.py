"""Faults of the machine: a full disk, a slow disk, a wrong clock."""

import asyncio
import os
import random
import stat
from contextlib import suppress
from pathlib import Path

from holdfast_lab.torture.faults import slow_syncs
from holdfast_lab.torture.faults.targets import SECONDS_MAX, SECONDS_MIN, called, some_time
from holdfast_lab.torture.faults.wait_until import felt
from holdfast_lab.torture.ports import Arena, ArenaProcess, Disk, NotNowError

#: Longer than several leases.
_LASTING_S = (20.0, 40.0)
_SYNC_S = (0.01, 0.6)
_TOP_UP_S = 0.1
#: A full disk has no effect before the reserved space is used up.
_USED_UP_S = 60.0
#: Attaching and detaching the tracer takes a moment: shorter faults would have little effect.
_SLOW_S = (0.5, 6.0)
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
STEPS_MS = (_HOUR_MS, -_HOUR_MS, _DAY_MS, -_DAY_MS, 3_000, -3_000, 700, -700)
#: Folders whose files are not journals.
_NO_JOURNALS = ("logs", "records")


class FullDisk:
    """Leaves no free disk space for a while."""

    def __init__(self, kind: str, seconds: tuple[float, float]) -> None:
        self.kind = kind
        self.seconds = seconds

    @classmethod
    def short(cls) -> "FullDisk":
        """A fault of the usual length."""
        return cls("full-disk", (SECONDS_MIN, SECONDS_MAX))

    @classmethod
    def lasting(cls) -> "FullDisk":
        """A fault that outlasts several leases."""
        return cls("full-disk-long", _LASTING_S)

    def lacking(self, arena: Arena) -> str:
        """Returns the reason why it cannot be fired, or an empty string."""
        if arena.disk is None:
            return f"{arena.topology} has no disk that a fault could fill in time"
        return arena.disk.no_filling

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Fires the fault; returns its duration, and the number of refusals."""
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
        return f"full for {seconds:.1f} s, {arena.no_room() - before} refusals"


async def _top_up(disk: Disk) -> None:
    """Fills the disk repeatedly, because deleted files free space."""
    while True:
        await asyncio.sleep(_TOP_UP_S)
        with suppress(NotNowError):  # it was full, and is filled again soon
            disk.fill()


class SlowDisk:
    """Delays the syncs of one process."""

    kind = "slow-disk"

    def lacking(self, arena: Arena) -> str:
        """Returns the reason why it cannot be fired, or an empty string."""
        if reason := slow_syncs.lacking():
            return reason
        return "" if arena.processes() or arena.engines else "the arena has no processes"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Fires the fault; returns the process, the delay, and the duration."""
        name, pids = draw.choice(_writers(arena))
        seconds, delay_s = some_time(draw, *_SLOW_S), some_time(draw, *_SYNC_S)
        async with slow_syncs.slow_syncs(pids, delay_s) as held_up:
            await felt(held_up, 0, seconds, name)
            count = held_up()
        return f"{name}, {seconds:.1f} s, {delay_s * 1_000:.0f} ms each of {count} syncs"


class ClockStep:
    """Sets the wall clock, and sets it right again."""

    kind = "clock"

    def lacking(self, arena: Arena) -> str:
        """Returns the reason why it cannot be fired, or an empty string."""
        return "" if arena.clock is not None else f"the clock of {arena.topology} cannot be set"

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Fires the fault; returns the step and the duration."""
        clock = arena.clock
        assert clock is not None, "see lacking"
        step_ms, seconds = draw.choice(STEPS_MS), some_time(draw)
        try:
            clock.step(step_ms)
            await asyncio.sleep(seconds)
        finally:
            clock.step(0)
        return f"by {step_ms / 1_000:+g} s for {seconds:.1f} s"


def keepers(arena: Arena) -> list[ArenaProcess]:
    """Returns the processes that have data of the arena open for writing."""
    return [process for process in arena.processes() if process.pid() and _writes_below(process.pid(), arena.folder)]


def _writers(arena: Arena) -> list[tuple[str, list[int]]]:
    """Returns the processes that have data of the arena open for writing, and every engine that is up."""
    journals = [(called(process), [process.pid()]) for process in keepers(arena)]
    found = [*journals, *((engine.name, pids) for engine in arena.engines if (pids := engine.pids()))]
    if not found:
        raise NotNowError("no process writes to a disk")
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
        # The permissions of a descriptor's link show how it was opened.
        is_written = bool(link.lstat().st_mode & stat.S_IWUSR)
        path = Path(link.readlink())
        return is_written and path.is_relative_to(home) and path.relative_to(home).parts[0] not in _NO_JOURNALS
    except (OSError, IndexError):
        return False
