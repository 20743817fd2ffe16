"""The fixture that every test of the suite uses. It needs a fixture `harness`, which the test module defines."""

from collections.abc import AsyncIterator

import pytest

from holdfast.testing.conformance.harness import Harness, lacks, needs_of
from holdfast.testing.conformance.workplace import Workplace


@pytest.fixture
async def place(request: pytest.FixtureRequest, harness: Harness) -> AsyncIterator[Workplace]:
    """A running backend that meets the needs of the test."""
    needed = needs_of(request.function)
    if reason := lacks(needed, harness):
        pytest.skip(reason)
    await harness.start(needed.terms)
    workplace = Workplace(harness)
    try:
        yield workplace
    finally:
        await workplace.leave()
        await harness.stop()
