"""Processes as the kernel reports them: their tree, their CPU time, memory and descriptors.

The role of a process is read from its command line, so that the measured program does not have to report it.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
#: Fields of `/proc/PID/stat` after the name in parentheses: state, parent, session, CPU time in user and system mode.
STATE, _PARENT, SESSION, _USER, _SYSTEM = 0, 1, 3, 11, 12

RoleOf = Callable[[list[str]], str]


class Usage(msgspec.Struct, frozen=True):
    """CPU time, memory and number of the processes of one role."""

    cpu_s: float = 0.0
    memory_bytes: int = 0
    processes: int = 0


def tree(root: int) -> list[int]:
    """A process and all its descendants, also those in other sessions."""
    children: dict[int, list[int]] = {}
    for pid, fields in all_processes():
        children.setdefault(int(fields[_PARENT]), []).append(pid)
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found


def argv(pid: int) -> list[str]:
    """The command line of a process; empty if it has ended."""
    try:
        return (_PROC / str(pid) / "cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []


class Meter:
    """CPU time and memory of a tree. A process that ends meanwhile counts up to its last reading."""

    def __init__(self, root: int, role_of: RoleOf) -> None:
        self._root = root
        self._role_of = role_of
        self._cpu: dict[int, float] = {}
        self._before: dict[int, float] = {}
        self._roles: dict[int, str] = {}

    def look(self) -> None:
        """Read the CPU times of all processes of the tree."""
        for pid in tree(self._root):
            if (cpu_s := _cpu_s(pid)) is not None:
                self._cpu[pid] = cpu_s
                if command := argv(pid):  # an ended process has no command line, and keeps its role
                    self._roles[pid] = self._role_of(command)

    def begin(self) -> None:
        """Count from now on."""
        self.look()
        self._before = dict(self._cpu)

    def usage(self) -> dict[str, Usage]:
        """CPU time since `begin` and present memory, by role."""
        self.look()
        found: dict[str, Usage] = {}
        for pid, cpu_s in self._cpu.items():
            role, memory = self._roles.get(pid, "others"), shared_bytes(pid)
            one = found.get(role, Usage())
            spent = cpu_s - self._before.get(pid, 0.0)
            found[role] = Usage(one.cpu_s + spent, one.memory_bytes + memory, one.processes + (memory > 0))
        return found

    def pids(self, role: str) -> list[int]:
        """The running processes of one role."""
        return [pid for pid in tree(self._root) if self._role_of(argv(pid)) == role]


def cpu_of(pids: Iterable[int]) -> float:
    """CPU seconds of these processes; ended ones count nothing."""
    return sum(_cpu_s(pid) or 0.0 for pid in pids)


def cpu_of_machine() -> float:
    """CPU seconds of all processes of this machine."""
    user, nice, system, _idle, _waiting, interrupts, soft_interrupts, *_ = map(
        int, (_PROC / "stat").read_text().partition("\n")[0].split()[1:]
    )
    return (user + nice + system + interrupts + soft_interrupts) / _TICKS


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    return 1_024 * proc_value(pid, "status", "VmRSS")


def peak_bytes(pid: int) -> int:
    """The largest resident memory that a process has had."""
    return 1_024 * proc_value(pid, "status", "VmHWM")


def proc_value(pid: int, file: str, name: str) -> int:
    """A number in a file of `/proc/PID` whose lines are names and values."""
    for line in (_PROC / str(pid) / file).read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise RuntimeError(f"/proc/{pid}/{file} has no {name}")


def descriptors(pid: int) -> int:
    """The number of open descriptors of a process; 0 if it has ended."""
    try:
        return len(list((_PROC / str(pid) / "fd").iterdir()))
    except OSError:
        return 0


def all_processes() -> Iterator[tuple[int, list[str]]]:
    """Every process with the fields of its `stat` file."""
    for entry in _PROC.iterdir():
        if entry.name.isdecimal() and (fields := _stat(int(entry.name))):
            yield int(entry.name), fields


def _stat(pid: int) -> list[str]:
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _cpu_s(pid: int) -> float | None:
    fields = _stat(pid)
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS if fields else None


def shared_bytes(pid: int) -> int:
    """Resident memory with shared pages divided among their users; 0 if the process has ended."""
    with contextlib.suppress(OSError, RuntimeError):
        return 1_024 * proc_value(pid, "smaps_rollup", "Pss")
    return 0
