"""What every test shares."""

from pathlib import Path

import pytest
from hypothesis import settings

from tests.postgres import database, postgres

__all__ = ["database", "postgres"]

# Machines differ and tests run side by side: a property is false or true, never late.
settings.register_profile("holdfast", deadline=None, print_blob=True)
settings.load_profile("holdfast")


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the checkout."""
    return Path(__file__).resolve().parent.parent
