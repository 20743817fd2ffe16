"""A fleet whose processes start at once: forked from a program that is loaded, they are processes like any others.

How the program starts from nothing is seen wherever a plain `Fleet` starts it.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from tests.e2e.fleet import Fleet, Process
from tests.e2e.loaded import LoadedProgram


class LoadedFleet(Fleet):
    """Starts real processes in one folder that need not load the program."""

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
    """A fleet for the length of a block."""
    fleet = LoadedFleet(folder, program)
    try:
        yield fleet
    finally:
        fleet.end()
