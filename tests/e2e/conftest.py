"""Fixtures that start processes for a test and kill them after it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.fleet import Fleet, fleet_in
from tests.e2e.preloaded_fleet import loaded_fleet_in
from tests.e2e.preloaded_prompt import LoadedProgram, loaded_program


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Starts real processes in the test's own folder."""
    with fleet_in(tmp_path) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def loaded() -> Iterator[LoadedProgram]:
    """The preloaded program from which commands are forked, once per session."""
    with loaded_program() as program:
        yield program


@pytest.fixture
def loaded_fleet(tmp_path: Path, loaded: LoadedProgram) -> Iterator[Fleet]:
    """A fleet whose processes are forked from the preloaded program, for tests that do not depend on a cold start."""
    with loaded_fleet_in(tmp_path, loaded) as fleet:
        yield fleet
