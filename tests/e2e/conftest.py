"""Processes for each test, gone after it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.fleet import Fleet, fleet_in


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Starts real processes in the test's own folder."""
    with fleet_in(tmp_path) as fleet:
        yield fleet
