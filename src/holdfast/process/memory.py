"""How much memory there is, and how much of it this process holds."""

import os
from collections.abc import Iterator
from pathlib import Path

_STATM = Path("/proc/self/statm")
_CGROUPS, _CGROUP_ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def physical_bytes() -> int:
    """The memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def available_bytes(cgroups: Path = _CGROUPS, root: Path = _CGROUP_ROOT) -> int:
    """The memory that this process may use: that of the machine, or less where its container has a limit."""
    return min([physical_bytes(), *_limits(cgroups, root)])


def _limits(cgroups: Path, root: Path) -> Iterator[int]:
    """The limits of the control groups of this process and of the groups around them, of version 2 and 1."""
    try:
        lines = cgroups.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base, name = (root / "memory", "memory.limit_in_bytes") if controllers else (root, "memory.max")
        group = base / path.lstrip("/")
        for folder in (group, *group.parents):
            yield from _limit(folder / name)
            if folder == base:
                break


def _limit(file: Path) -> Iterator[int]:
    try:
        text = file.read_text().strip()
    except OSError:  # no such group is seen from here
        return
    if text.isdigit() and int(text):
        yield int(text)


def resident_bytes() -> int:
    """What this process holds in memory now; 0 where the system does not tell."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
