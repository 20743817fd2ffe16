"""Fixtures of the core's tests."""

from collections.abc import Iterator

import pytest

from tests.unit.core.ledger_driver import LedgerDriver


@pytest.fixture
def driver() -> Iterator[LedgerDriver]:
    """A new desk; after the test, the state must be consistent and must agree with the model."""
    driver = LedgerDriver()
    yield driver
    driver.check()
