"""Processes for each test, gone after it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.fleet import Fleet, fleet_in
from tests.e2e.loaded import LoadedProgram, loaded_program
from tests.e2e.loaded_fleet import loaded_fleet_in


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Starts real processes in the test's own folder."""
    with fleet_in(tmp_path) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def loaded() -> Iterator[LoadedProgram]:
    """The program, loaded once for all commands at a prompt."""
    with loaded_program() as program:
        yield program


@pytest.fixture
def loaded_fleet(tmp_path: Path, loaded: LoadedProgram) -> Iterator[Fleet]:
    """A fleet for tests of which it is no part how the program is loaded."""
    with loaded_fleet_in(tmp_path, loaded) as fleet:
        yield fleet
