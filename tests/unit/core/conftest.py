"""Fixtures of the core's tests."""

from collections.abc import Iterator

import pytest

from tests.unit.core.desk import Desk


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A new desk; after the test, the book must be consistent and must agree with the model."""
    desk = Desk()
    yield desk
    desk.check()
