"""Connections that break or go silent: a call ends within its limit, and its outcome is unknown."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest

from holdfast.topologies.cluster.database.address import DatabaseAddress
from holdfast.topologies.cluster.database.frame_reader import PostgresFrameReader
from holdfast.topologies.cluster.database.frame_writer import PostgresFrameWriter
from holdfast.topologies.cluster.database.registry import PostgresRegistry
from holdfast.topologies.cluster.ports import Append, DatabaseLostError, FrameKey
from tests.integration.cluster.cluster_work import LEASE_MS, chain, node
from tests.integration.database_proxy import Way

T = TypeVar("T")


@pytest.fixture
async def way(cluster: str, tmp_path: Path) -> AsyncIterator[Way]:
    """A proxy to the database."""
    way = Way(cluster, tmp_path)
    await way.open()
    yield way
    await way.close()


@pytest.fixture
def far(way: Way, writer: PostgresFrameWriter) -> PostgresFrameWriter:
    """A writer of shard 0, connected through the proxy."""
    del writer
    return PostgresFrameWriter(DatabaseAddress(url=way.url), 0)


async def patiently(call: Callable[[], T]) -> T:
    """Repeats a call while the database is lost."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await asyncio.to_thread(call)
            except DatabaseLostError:
                await asyncio.sleep(0.01)


async def test_lost_answer_to_an_append_is_read_back(far: PostgresFrameWriter, way: Way) -> None:
    """An append whose answer was lost is found afterwards, and its position is taken."""
    (frame,) = chain(b"lost on its way")
    assert await patiently(lambda: far.find(1)) is None
    way.lose_answer_to(b"lost on its way")
    with pytest.raises(DatabaseLostError) as lost:
        await asyncio.to_thread(far.append, frame)
    assert (way.lost, lost.value.details) == (1, {"retry_after_s": "1"})
    assert await patiently(lambda: far.find(1)) == FrameKey(1, frame.checksum)
    assert await asyncio.to_thread(far.append, frame) == Append.TAKEN
    far.close()


@pytest.mark.parametrize("is_connected", [True, False])
async def test_silent_database_is_lost_within_the_limit(
    way: Way,
    writer: PostgresFrameWriter,
    is_connected: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Every call to a database that does not answer any more ends, and later calls succeed again."""
    address = DatabaseAddress(url=way.url, limit_ms=300)
    near, reader, registry = PostgresFrameWriter(address, 0), PostgresFrameReader(address, 0), PostgresRegistry(address)
    calls: list[Callable[[], object]] = [
        lambda: near.append(chain(b"one")[0]),
        lambda: reader.frames(0, 1),
        lambda: registry.beat(node(), {}, LEASE_MS),
    ]
    if is_connected:
        await patiently(lambda: near.find(1))
        await patiently(lambda: [reader.first_position(), registry.beat(node(), {}, LEASE_MS)])
    way.is_silent = True
    for call in calls:
        with pytest.raises(DatabaseLostError):
            await asyncio.to_thread(call)
    way.is_silent = False
    await way.close()
    await way.open()
    for call in calls:
        await patiently(call)
    for one in (near, reader, registry):
        one.close()
    assert await asyncio.to_thread(writer.find, 1) is not None


async def test_cut_connections_heal(far: PostgresFrameWriter, way: Way) -> None:
    """While the database cannot be reached every call is lost; afterwards calls succeed again."""
    await patiently(lambda: far.find(1))
    await way.close()
    for _ in range(2):
        with pytest.raises(DatabaseLostError):
            await asyncio.to_thread(far.confirm, 1)
    await way.open()
    assert await patiently(lambda: far.confirm(1)) == Append.WRITTEN
    far.close()


def test_terminated_connection_is_replaced(writer: PostgresFrameWriter, admin: psycopg.Connection) -> None:
    """After an administrator has terminated the connection one call is lost, and the next one succeeds."""
    assert writer.find(1) is None
    admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with pytest.raises(DatabaseLostError):
        writer.append(chain(b"one")[0])
    assert writer.append(chain(b"one")[0]) == Append.WRITTEN


def test_append_does_not_wait_for_a_lock_without_limit(
    writer: PostgresFrameWriter, cluster: str, registry: PostgresRegistry
) -> None:
    """An append that waits too long for the leader row is ended by the server, and changes nothing."""
    quick = PostgresFrameWriter(DatabaseAddress(url=cluster, limit_ms=400), 0)
    with psycopg.connect(cluster) as holding:
        holding.execute("SELECT FROM holdfast.leaders FOR UPDATE")
        with pytest.raises(DatabaseLostError):
            quick.append(chain(b"one")[0])
    assert writer.find(1) is None
    quick.close()
    assert len(registry.beat(node(), {}, LEASE_MS).shards) == 2
