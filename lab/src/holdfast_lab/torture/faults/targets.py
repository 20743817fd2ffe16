"""The targets of faults, and their durations.

Signals are sent only to processes of the arena, and through a pidfd: a pid that was reused meanwhile gets no signal.
"""

import copy
import os
import random
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast_lab.torture.ports import Arena, ArenaProcess, NotNowError

#: The duration of most faults; short ones are more frequent.
SECONDS_MIN, SECONDS_MAX = 0.2, 6.0
#: How often the role is chosen that was unaffected the longest, and not a random one.
_TURNS = 0.7
#: Fields of `/proc/PID/stat`, counted after the name.
_STATE, _STARTED = 0, 19


def some_time(draw: random.Random, least: float = SECONDS_MIN, most: float = SECONDS_MAX) -> float:
    """Draws a duration; short ones are more frequent."""
    return least + (most - least) * float(draw.random()) ** 3


class Pidfds:
    """Pidfds of processes, open while the block runs."""

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
        """Sends a signal; returns the pids of the processes that received it."""
        return [pid for pid, descriptor in self._descriptors.items() if _send(descriptor, number)]


def _send(descriptor: int, number: signal.Signals) -> bool:
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    return True


def living(arena: Arena, role: str = "") -> list[ArenaProcess]:
    """Returns the processes that are running; raises `NotNowError` if there are none."""
    found = [process for process in arena.processes() if process.pid() and role in {"", process.role}]
    if not found:
        raise NotNowError("no process is running")
    return found


def one(arena: Arena, draw: random.Random, role: str = "") -> ArenaProcess:
    """Draws a process of the role whose turn it is."""
    everybody = living(arena, role)
    role = role or turn(everybody, draw)
    return draw.choice([process for process in everybody if process.role == role])


def turn(everybody: Sequence[ArenaProcess], draw: random.Random) -> str:
    """Returns mostly the role without a restart for the longest time, so that every role has its turn during a run."""
    roles = sorted({process.role for process in everybody})
    if draw.random() >= _TURNS:
        return draw.choice(roles)
    youngest = {role: max(_started(process.pid()) for process in everybody if process.role == role) for role in roles}
    return min(roles, key=lambda role: youngest[role])


def _started(pid: int) -> int:
    """Returns the start time in ticks since boot; a far future if the process is gone."""
    fields = _fields(pid)
    return int(fields[_STARTED]) if fields else 1 << 62


def state(pid: int) -> str:
    """Returns the kernel's letter for the state: T is stopped; empty if the process is gone."""
    fields = _fields(pid)
    return fields[_STATE] if fields else ""


def _fields(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def called(process: ArenaProcess) -> str:
    """Returns its name for reports."""
    return f"{process.role} {process.name}"


class TargetedFault:
    """A fault that can be aimed at one role, or at one engine."""

    kind: str
    #: The role or the engine; empty: any.
    aim = ""

    def at(self, aim: str) -> Self:
        """The same fault, aimed; its kind names the aim."""
        aimed = copy.copy(self)
        aimed.aim, aimed.kind = aim, f"{self.kind} {aim}"
        return aimed


class ProcessFault(TargetedFault):
    """A fault that sends signals to the arena's processes."""

    def lacking(self, arena: Arena) -> str:
        """Returns the reason why it cannot be fired, or an empty string."""
        if not hasattr(signal, "pidfd_send_signal"):
            return "this system has no pidfds"
        return "" if arena.processes() else "the arena has no processes"
