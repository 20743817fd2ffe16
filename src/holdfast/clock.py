"""The clocks of this machine.

Whoever decides by the time of day takes its clock from `system_clock`, once, when it is made. For tests, the
environment may name a file with HOLDFAST_CLOCK_FILE: its eight bytes, a signed big-endian number of milliseconds, are
added to the wall clock, and whoever writes the file steps the clock of the processes that read it. Steady time is never
touched. It is no setting: unless the variable is there, the time is the machine's.
"""

import mmap
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

#: Names the file of the offset.
CLOCK_FILE = "HOLDFAST_CLOCK_FILE"
OFFSET_BYTES = 8


_BOOT_ID, _UPTIME = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/uptime")


class Uptime(NamedTuple):
    """How long the machine has been up, the time included in which it was suspended, and which boot that was."""

    boot: str
    ms: int


class SystemClock:
    """Wall time and steady time in whole milliseconds."""

    __slots__ = ()

    def wall_ms(self) -> int:
        """UTC since 1970; jumps when somebody sets it."""
        return time.time_ns() // 1_000_000

    def steady_ms(self) -> int:
        """Since boot; keeps counting while this process is stopped."""
        return time.monotonic_ns() // 1_000_000

    def uptime(self) -> Uptime | None:
        """The machine's uptime, where the system tells it; nobody sets it, as one sets the wall clock."""
        try:
            return Uptime(_BOOT_ID.read_text().strip(), int(float(_UPTIME.read_text().split()[0]) * 1_000))
        except (OSError, ValueError, IndexError):
            return None


class SteppedClock(SystemClock):
    """A wall clock that somebody else steps through a file."""

    __slots__ = ("_offset",)

    def __init__(self, path: Path) -> None:
        """The file is there and has its eight bytes; it stays mapped."""
        with path.open("rb") as file:
            self._offset = mmap.mmap(file.fileno(), OFFSET_BYTES, access=mmap.ACCESS_READ)

    def wall_ms(self) -> int:
        """UTC since 1970, and what the file says now."""
        return SystemClock.wall_ms(self) + int.from_bytes(self._offset[:OFFSET_BYTES], "big", signed=True)


def system_clock(environment: Mapping[str, str] = os.environ) -> SystemClock:
    """The machine's clock, stepped if the environment names a file for that."""
    path = environment.get(CLOCK_FILE)
    return SteppedClock(Path(path)) if path else SystemClock()
