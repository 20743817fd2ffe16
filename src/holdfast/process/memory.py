"""Memory of the machine, limit of the container, share of it for jobs, and resident size of this process."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import limits

if TYPE_CHECKING:  # child processes read their memory, and need no settings
    from holdfast.settings import Settings

_STATM = Path("/proc/self/statm")
_STATM_BYTES_MAX = 256
_CGROUPS, _CGROUP_ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def physical_bytes() -> int:
    """Returns the memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def available_bytes(cgroups: Path = _CGROUPS, root: Path = _CGROUP_ROOT) -> int:
    """Returns the memory that this process may use: that of the machine, or the limit of its container if lower."""
    return min([physical_bytes(), *_limits(cgroups, root)])


def memory_for_jobs(settings: "Settings") -> int:
    """Returns the configured limit, or a share of the memory of the machine or container."""
    return settings.memory_bytes or available_bytes() // limits.MEMORY_SHARE


def _limits(cgroups: Path, root: Path) -> Iterator[int]:
    """Yields the limits of the process's control groups and of their parent groups, versions 1 and 2."""
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
    except OSError:  # the group is not visible to this process
        return
    if text.isdigit() and int(text):
        yield int(text)


def resident_bytes() -> int:
    """Returns the resident size of this process; 0 if the system does not provide it."""
    size = ResidentSize()
    try:
        return size.read()
    finally:
        size.close()


class ResidentSize:
    """The resident size of this process, from a file that stays open: later reads need no free descriptor."""

    def __init__(self) -> None:
        self._file = -1
        with contextlib.suppress(OSError):
            self._file = os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> int:
        """Returns the size in bytes; 0 if the system does not provide it, or after `close`."""
        if self._file < 0:
            return 0
        return int(os.pread(self._file, _STATM_BYTES_MAX, 0).split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def close(self) -> None:
        """Closes the file; idempotent."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
