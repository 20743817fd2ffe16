"""Signals about commits of other processes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from holdfast.topologies.cluster.database.address import DatabaseAddress
from holdfast.topologies.cluster.database.commit_signals import (
    CommitSignal,
    CommitSignals,
    FrameAnnouncer,
    SignalKind,
)
from holdfast.topologies.cluster.database.registry import PostgresRegistry
from tests.integration.cluster.cluster_work import LIMIT_MS, lead
from tests.integration.database_proxy import Way

POLL = CommitSignal(SignalKind.POLL)
Heard = asyncio.Queue[CommitSignal]


@pytest.fixture
async def way(cluster: str, tmp_path: Path) -> AsyncIterator[Way]:
    """A proxy to the database."""
    way = Way(cluster, tmp_path)
    await way.open()
    yield way
    await way.close()


@pytest.fixture
async def heard(way: Way) -> AsyncIterator[Heard]:
    """The signals that a listener behind the proxy has received."""
    heard = Heard()
    listening = asyncio.create_task(
        CommitSignals(DatabaseAddress(url=way.url, limit_ms=LIMIT_MS), heard.put_nowait).run()
    )
    yield heard
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def test_listener_polls_first(heard: Heard) -> None:
    """The first signal is POLL, once no signal can be missed any more."""
    assert await heard.get() == POLL


async def test_submit_and_takeover_are_heard(
    heard: Heard, admin: psycopg.Connection, registry: PostgresRegistry
) -> None:
    """A committed submit, a takeover and a handover are signals of their shards."""
    assert await heard.get() == POLL
    ((shard,),) = admin.execute(
        "WITH made AS (SELECT holdfast.submit('echo') AS id) SELECT holdfast.owner(id::text, 2) FROM made"
    ).fetchall()
    assert await heard.get() == CommitSignal(SignalKind.INBOX, shard)
    assert await asyncio.to_thread(lead, registry, "a", 1) == 1
    assert await heard.get() == CommitSignal(SignalKind.LEADERS, 1)
    assert await asyncio.to_thread(registry.hand_over, 1, 1, "b")
    assert await heard.get() == CommitSignal(SignalKind.LEADERS, 1)


async def test_announced_frames_are_heard(heard: Heard, address: DatabaseAddress) -> None:
    """Announcements arrive once for each shard of a batch, and a later batch arrives too."""
    assert await heard.get() == POLL
    announcer = FrameAnnouncer(address)
    for shard in (1, 0, 1):
        announcer.announce(shard)
    assert {await heard.get(), await heard.get()} == {
        CommitSignal(SignalKind.FRAMES, 0),
        CommitSignal(SignalKind.FRAMES, 1),
    }
    announcer.announce(1)
    await announcer.close()
    assert await heard.get() == CommitSignal(SignalKind.FRAMES, 1)


async def test_announcements_survive_a_lost_connection(
    heard: Heard, address: DatabaseAddress, admin: psycopg.Connection
) -> None:
    """An announcement may be lost with its connection, and a later one arrives over another."""
    assert await heard.get() == POLL
    announcer = FrameAnnouncer(address)
    announcer.announce(0)
    assert await heard.get() == CommitSignal(SignalKind.FRAMES, 0)
    admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_notify%%'", [])
    while heard.empty():
        announcer.announce(1)
        await asyncio.sleep(0.01)
    await announcer.close()
    assert await heard.get() == CommitSignal(SignalKind.FRAMES, 1)


async def test_lost_connection_is_followed_by_a_poll(heard: Heard, way: Way, admin: psycopg.Connection) -> None:
    """After each reconnect the listener polls, because signals may have been lost; then it hears again."""
    assert await heard.get() == POLL
    await way.close()
    admin.execute("SELECT holdfast.submit('echo', request_id => 'lost')")
    await way.open()
    assert await heard.get() == POLL
    admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%'", [])
    assert await heard.get() == POLL
    admin.execute("SELECT pg_notify('holdfast_frames', 'not a shard')")
    assert await heard.get() == POLL
    admin.execute("SELECT pg_notify('holdfast_frames', '1')")
    assert await heard.get() == CommitSignal(SignalKind.FRAMES, 1)
