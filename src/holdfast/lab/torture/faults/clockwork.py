"""The wall clock of real processes: a file that they have mapped, see `holdfast.clock`."""

import os
from pathlib import Path

from holdfast.clock import CLOCK_FILE, OFFSET_BYTES


class FileClock:
    """Processes started with its `environment` are told its time. Implements the port `Clockwork`."""

    def __init__(self, path: Path) -> None:
        """Makes the file; it shows the true time."""
        self.path = path
        self.path.write_bytes(bytes(OFFSET_BYTES))
        #: What the processes have to find in their environment.
        self.environment = {CLOCK_FILE: str(path)}

    @property
    def offset_ms(self) -> int:
        """How far ahead it is."""
        return int.from_bytes(self.path.read_bytes(), "big", signed=True)

    def step(self, ms: int) -> None:
        """So far ahead (or back) of the true time from now on; 0 is true."""
        # Over the bytes that are there: a reader has the file mapped, and must never see it empty.
        descriptor = os.open(self.path, os.O_WRONLY)
        try:
            os.pwrite(descriptor, ms.to_bytes(OFFSET_BYTES, "big", signed=True), 0)
        finally:
            os.close(descriptor)
