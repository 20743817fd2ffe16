"""Where tests of bidding work: a root of their own on a real server."""

from collections.abc import AsyncIterator

import pytest

from holdfast.topologies.zookeeper.backend import connection as connecting
from tests.integration.zookeeper.faults import Bidding
from tests.zookeeper import Place


@pytest.fixture
async def bidding(zookeeper: Place) -> AsyncIterator[Bidding]:
    """Workers and clients, none of which is left."""
    made = Bidding(zookeeper)
    yield made
    await made.end()


@pytest.fixture
def call_s() -> float:
    """How long a request may take here: only a test that waits for an end of it should ever see that."""
    return 20.0


@pytest.fixture(autouse=True)
def _patient(call_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still for some seconds is no fault of anybody's."""
    monkeypatch.setattr(connecting, "_CALL_S", call_s)
