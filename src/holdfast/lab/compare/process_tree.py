"""What the processes of a topology use, by role, as the kernel counts it.

The role of a process is read from its command line, so nothing of what is measured has to know of this.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
#: After the name in parentheses: the parent, and the CPU time in user and system mode.
_PARENT, _USER, _SYSTEM = 1, 11, 12

RoleOf = Callable[[list[str]], str]


class Usage(msgspec.Struct, frozen=True):
    """Of one role: CPU time, memory, and how many processes there are."""

    cpu_s: float = 0.0
    memory_bytes: int = 0
    processes: int = 0


def tree(root: int) -> list[int]:
    """The process and all its descendants; the sessions they made for themselves do not matter."""
    children: dict[int, list[int]] = {}
    for pid, fields in _all_processes():
        children.setdefault(int(fields[_PARENT]), []).append(pid)
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found


def argv(pid: int) -> list[str]:
    """Its command line; empty if it is gone."""
    try:
        return (_PROC / str(pid) / "cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []


class Meter:
    """CPU time and memory of a tree, also of processes that end while it is measured, up to the last look at them."""

    def __init__(self, root: int, role_of: RoleOf) -> None:
        self._root = root
        self._role_of = role_of
        self._cpu: dict[int, float] = {}
        self._before: dict[int, float] = {}
        self._roles: dict[int, str] = {}

    def look(self) -> None:
        """Takes the CPU times of all who are there."""
        for pid in tree(self._root):
            if (cpu_s := _cpu_s(pid)) is not None:
                self._cpu[pid] = cpu_s
                if command := argv(pid):  # one that has ended has none, and keeps its role
                    self._roles[pid] = self._role_of(command)

    def begin(self) -> None:
        """From now on it counts."""
        self.look()
        self._before = dict(self._cpu)

    def usage(self) -> dict[str, Usage]:
        """By role: CPU time since `begin`, and memory now."""
        self.look()
        found: dict[str, Usage] = {}
        for pid, cpu_s in self._cpu.items():
            role, memory = self._roles.get(pid, "others"), _memory_bytes(pid)
            one = found.get(role, Usage())
            spent = cpu_s - self._before.get(pid, 0.0)
            found[role] = Usage(one.cpu_s + spent, one.memory_bytes + memory, one.processes + (memory > 0))
        return found

    def pids(self, role: str) -> list[int]:
        """Those of one role that are there now."""
        return [pid for pid in tree(self._root) if self._role_of(argv(pid)) == role]


def cpu_of(pids: Iterable[int]) -> float:
    """CPU time that these processes have used, those that are gone not counted."""
    return sum(_cpu_s(pid) or 0.0 for pid in pids)


def cpu_of_machine() -> float:
    """CPU time that everybody on this machine has used."""
    user, nice, system, _idle, _waiting, interrupts, soft_interrupts, *_ = map(
        int, (_PROC / "stat").read_text().partition("\n")[0].split()[1:]
    )
    return (user + nice + system + interrupts + soft_interrupts) / _TICKS


def _all_processes() -> Iterator[tuple[int, list[str]]]:
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


def _memory_bytes(pid: int) -> int:
    """Its share of what is resident: pages of several processes are divided among them; 0 if it is gone."""
    with contextlib.suppress(OSError):
        for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1_024
    return 0
