"""The fixture that every test of the suite asks for. Its own `harness` is the binding's to define."""

from collections.abc import AsyncIterator

import pytest

from holdfast.testing.conformance.harness import Harness, lacks, needs_of
from holdfast.testing.conformance.workplace import Workplace


@pytest.fixture
async def place(request: pytest.FixtureRequest, harness: Harness) -> AsyncIterator[Workplace]:
    """A backend that serves, on the terms that the test needs."""
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
