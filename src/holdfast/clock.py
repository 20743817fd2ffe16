"""The clocks of this machine.

Objects that depend on the time of day get their clock from `system_clock` when they are constructed. For tests, the
environment variable HOLDFAST_CLOCK_FILE may name a file: its eight bytes, a signed big-endian number of milliseconds,
are added to the wall clock, so that a test steps the clock of a process by writing to the file. Steady time is not
affected. The variable is not a setting; without it the time is that of the machine.
"""

import mmap
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

#: The environment variable that names the file with the offset.
CLOCK_FILE = "HOLDFAST_CLOCK_FILE"
OFFSET_BYTES = 8


_BOOT_ID, _UPTIME = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/uptime")


class Uptime(NamedTuple):
    """Time since boot, including time in which the machine was suspended, and the id of the boot."""

    boot: str
    ms: int


class SystemClock:
    """Wall time and steady time in whole milliseconds."""

    __slots__ = ()

    def wall_ms(self) -> int:
        """Returns UTC since 1970; jumps when the machine's clock is set."""
        return time.time_ns() // 1_000_000

    def steady_ms(self) -> int:
        """Returns the time since boot; it also passes while this process is stopped."""
        return time.monotonic_ns() // 1_000_000

    def uptime(self) -> Uptime | None:
        """Returns the uptime, or None if the system does not provide it; unlike the wall clock it cannot be set."""
        try:
            return Uptime(_BOOT_ID.read_text().strip(), int(float(_UPTIME.read_text().split()[0]) * 1_000))
        except (OSError, ValueError, IndexError):
            return None


class SteppedClock(SystemClock):
    """A wall clock whose offset another process sets through a file."""

    __slots__ = ("_offset",)

    def __init__(self, path: Path) -> None:
        """Maps the file, which must exist and have eight bytes."""
        with path.open("rb") as file:
            self._offset = mmap.mmap(file.fileno(), OFFSET_BYTES, access=mmap.ACCESS_READ)

    def wall_ms(self) -> int:
        """Returns UTC since 1970 plus the current offset in the file."""
        return SystemClock.wall_ms(self) + int.from_bytes(self._offset[:OFFSET_BYTES], "big", signed=True)


def system_clock(environment: Mapping[str, str] = os.environ) -> SystemClock:
    """Returns the machine's clock, or a `SteppedClock` if the environment names a file for it."""
    path = environment.get(CLOCK_FILE)
    return SteppedClock(Path(path)) if path else SystemClock()
