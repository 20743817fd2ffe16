"""Fixtures of the tests of the store."""

from collections.abc import AsyncIterator

import pytest

from holdfast.topologies.pipeline.backend import http_client
from holdfast.topologies.pipeline.postgres.database import PostgresStore
from tests.integration.pipeline.long_timeouts import PATIENCE_S, open_patiently


@pytest.fixture(autouse=True)
def patient_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises the connect timeout, so that a slow connection within this process does not count as a failure."""
    monkeypatch.setattr(http_client, "_CONNECT_S", PATIENCE_S)


@pytest.fixture
async def store(database: str) -> AsyncIterator[PostgresStore]:
    """A store over an empty database."""
    async with await open_patiently(database) as store:
        yield store
