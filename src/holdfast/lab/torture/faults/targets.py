"""Whom a fault hits, and for how long.

Only processes that an arena shows are ever sent a signal, through a descriptor that stands for the process itself: a
pid that was given to somebody else meanwhile is nobody's.
"""

import os
import random
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.lab.torture.ports import Arena, NotNowError, Process

#: How long most faults last, mostly the shorter.
SECONDS_MIN, SECONDS_MAX = 0.2, 6.0
#: How often a role is taken that has gone unhurt the longest, rather than any.
_TURNS = 0.7
#: Of `/proc/PID/stat`, counted from behind the name.
_STATE, _STARTED = 0, 19


def some_time(draw: random.Random, least: float = SECONDS_MIN, most: float = SECONDS_MAX) -> float:
    """Mostly short."""
    return least + (most - least) * float(draw.random()) ** 3


class Held:
    """Processes that cannot be mistaken for others while the block lasts."""

    def __init__(self, pids: Iterable[int]) -> None:
        self.pids = list(pids)
        self._descriptors: dict[int, int] = {}

    def __enter__(self) -> Self:
        for pid in self.pids:
            try:
                self._descriptors[pid] = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def send(self, number: signal.Signals) -> list[int]:
        """Those of them who were there to get it."""
        return [pid for pid, descriptor in self._descriptors.items() if _send(descriptor, number)]


def _send(descriptor: int, number: signal.Signals) -> bool:
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    return True


def living(arena: Arena) -> list[Process]:
    """Seats that somebody has; raises `NotNowError` if there are none."""
    found = [process for process in arena.processes() if process.pid()]
    if not found:
        raise NotNowError("no process is there")
    return found


def one(arena: Arena, draw: random.Random) -> Process:
    """A process of a role whose turn it is."""
    everybody = living(arena)
    role = turn(everybody, draw)
    return draw.choice([process for process in everybody if process.role == role])


def turn(everybody: Sequence[Process], draw: random.Random) -> str:
    """Mostly the role of which nobody was replaced for the longest time, so that in a run every role has its turn."""
    roles = sorted({process.role for process in everybody})
    if draw.random() >= _TURNS:
        return draw.choice(roles)
    youngest = {role: max(_started(process.pid()) for process in everybody if process.role == role) for role in roles}
    return min(roles, key=lambda role: youngest[role])


def _started(pid: int) -> int:
    """When, in ticks since boot; now, if it is gone already."""
    fields = _fields(pid)
    return int(fields[_STARTED]) if fields else 1 << 62


def state(pid: int) -> str:
    """As the kernel's letter: T is stopped; empty if it is gone."""
    fields = _fields(pid)
    return fields[_STATE] if fields else ""


def _fields(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def called(process: Process) -> str:
    """As a report names it."""
    return f"{process.role} {process.name}"


class OfProcesses:
    """A fault of an arena's own processes, which are sent signals."""

    def lacking(self, arena: Arena) -> str:
        """Why it cannot be fired."""
        if not hasattr(signal, "pidfd_send_signal"):
            return "this system has no descriptors of processes"
        return "" if arena.processes() else "the arena has no processes"
