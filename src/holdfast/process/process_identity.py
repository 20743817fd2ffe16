"""Unique names of processes, to check later whether the process that served a directory still runs.

A name consists of the boot id, the PID namespace, the PID and the start time of the process. A process of another boot
or namespace cannot be looked up; it counts as gone, because this process holds the lock of the directory. A process
that is exiting counts as gone too: its lock is released before its parent is notified.
"""

import os
from pathlib import Path

_PROC = Path("/proc")
#: Indexes of fields in /proc/PID/stat, after the program name.
_STATE, _FLAGS, _START_TIME = 0, 6, 19
_DEAD = frozenset({"Z", "X"})
_PF_EXITING = 0x4


def own() -> str:
    """Returns the name of this process."""
    return f"{_place()}/{os.getpid()}/{_stat(os.getpid())[_START_TIME]}"


def is_gone(name: str) -> bool:
    """Returns whether the process of this name has ended, as far as this process can see."""
    place, pid, started = (["", "", *name.rsplit("/", 2)])[-3:]
    if place != _place() or not pid.isdecimal():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it belongs to another user
    try:
        stat = _stat(int(pid))
    except OSError:  # processes of other users may be hidden
        return False
    return stat[_START_TIME] != started or stat[_STATE] in _DEAD or bool(int(stat[_FLAGS]) & _PF_EXITING)


def _place() -> str:
    boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{(_PROC / 'self/ns/pid').readlink()}"


def _stat(pid: int) -> list[str]:
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
