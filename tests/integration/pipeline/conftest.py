"""What tests of the store share."""

from collections.abc import AsyncIterator

import pytest

from holdfast.backends.pipeline.postgres.database import PostgresStore, open_store


@pytest.fixture
async def store(database: str) -> AsyncIterator[PostgresStore]:
    """A store over an empty database."""
    async with await open_store(database) as store:
        yield store
