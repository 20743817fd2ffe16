"""A fleet that forks its processes from a preloaded program, which saves the import time.

Tests with a plain `Fleet` cover the cold start of the program.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from tests.e2e.fleet import Fleet, Process
from tests.e2e.preloaded_prompt import LoadedProgram


class LoadedFleet(Fleet):
    """Starts processes in one folder by forking the preloaded program."""

    def __init__(self, folder: Path, program: LoadedProgram) -> None:
        super().__init__(folder)
        self._program = program

    def _launch(
        self, arguments: tuple[str, ...], environment: Mapping[str, str], out: BinaryIO, log: BinaryIO
    ) -> Process:
        with Path(os.devnull).open("rb") as nothing:
            streams = (nothing.fileno(), out.fileno(), log.fileno())
            return self._program.start(arguments, streams, environment, self.folder)


@contextlib.contextmanager
def loaded_fleet_in(folder: Path, program: LoadedProgram) -> Iterator[LoadedFleet]:
    """Yields a fleet and ends its processes on exit."""
    fleet = LoadedFleet(folder, program)
    try:
        yield fleet
    finally:
        fleet.end()
