"""Fixtures for tests of bidding: a root of their own on a real server."""

from collections.abc import AsyncIterator

import pytest

from holdfast.topologies.zookeeper.backend import connection as connecting
from tests.integration.zookeeper.faults import Bidding
from tests.zookeeper import Place


@pytest.fixture
async def bidding(zookeeper: Place) -> AsyncIterator[Bidding]:
    """Workers and clients, all of which are closed at the end."""
    made = Bidding(zookeeper)
    yield made
    await made.end()


@pytest.fixture
def call_s() -> float:
    """The deadline of a request; only a test that waits for it should reach it."""
    return 20.0


@pytest.fixture(autouse=True)
def _patient(call_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises the deadline, so that a pause of the machine fails no test."""
    monkeypatch.setattr(connecting, "_CALL_S", call_s)
