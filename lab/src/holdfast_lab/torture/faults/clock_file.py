"""The wall clock of real processes: a file that they have mapped, see `holdfast.clock`."""

import os
from pathlib import Path

from holdfast.clock import CLOCK_FILE, OFFSET_BYTES


class FileClock:
    """Processes started with its `environment` read its time; implements the port `ArenaClock`."""

    def __init__(self, path: Path) -> None:
        """Creates the file; it shows the true time."""
        self.path = path
        self.path.write_bytes(bytes(OFFSET_BYTES))
        #: Variables for the environment of the processes.
        self.environment = {CLOCK_FILE: str(path)}

    @property
    def offset_ms(self) -> int:
        """The current offset from the true time."""
        return int.from_bytes(self.path.read_bytes(), "big", signed=True)

    def step(self, ms: int) -> None:
        """Sets the clock ahead of the true time (or back, if negative); 0 sets it right."""
        # Overwrite the bytes in place: readers have the file mapped and must never see it empty.
        descriptor = os.open(self.path, os.O_WRONLY)
        try:
            os.pwrite(descriptor, ms.to_bytes(OFFSET_BYTES, "big", signed=True), 0)
        finally:
            os.close(descriptor)
