"""Where tests of bidding work: a root of their own on a real server."""

from collections.abc import AsyncIterator

import pytest

from tests.integration.zookeeper.faults import Bidding
from tests.zookeeper import Place


@pytest.fixture
async def bidding(zookeeper: Place) -> AsyncIterator[Bidding]:
    """Workers and clients, none of which is left."""
    made = Bidding(zookeeper)
    yield made
    await made.end()
