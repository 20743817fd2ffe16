"""What the tests of the core share."""

from collections.abc import Iterator

import pytest

from tests.unit.core.desk import Desk


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A fresh desk; whatever a test does at it, the book must be consistent and the model agree."""
    desk = Desk()
    yield desk
    desk.check()
