"""Leader election of the schedulers: one leader at a time, by the database's clock, takeover when its lease ends."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import psycopg
import pytest

from holdfast.core.model import ScheduleSpec, Template
from holdfast.errors import FailedPreconditionError
from holdfast.process.private_postgres import PrivatePostgres
from holdfast.topologies.pipeline.backend.cron_leader import TAKEOVER_MS, CronLeader, terms
from holdfast.topologies.pipeline.backend.store import Leadership
from holdfast.topologies.pipeline.postgres.connections import StoreConnection
from holdfast.topologies.pipeline.postgres.database import PostgresStore
from tests.integration.pipeline.long_timeouts import HURRY_S, open_patiently, wait_for_connections
from tests.integration.pipeline.turned_clock import DAY, MINUTE, SECOND, Clockwork, TurnedClock
from tests.integration.pipeline.wait_until import happens

SPEC = ScheduleSpec("s", Template("work"), every_ms=SECOND)


@pytest.fixture
async def clockwork(store: PostgresStore, database: str) -> AsyncIterator[Clockwork]:
    """Schedules over an empty database, at the beginning of 2026."""
    clock = TurnedClock(database)
    yield Clockwork(store, clock)
    clock.close()


async def led(clockwork: Clockwork, holder: str) -> Leadership:
    """Takes the leadership, which must be free."""
    leadership = await clockwork.schedules.lead(holder, 3_000)
    assert leadership is not None
    return leadership


async def test_leadership_goes_to_one(clockwork: Clockwork) -> None:
    """The leader extends its lease, and a rival leads with the next epoch when the lease is returned or expired."""
    first = await led(clockwork, "a")
    assert (await clockwork.schedules.lead("b", 3_000), await led(clockwork, "a")) == (None, first)
    clockwork.clock.turn(2_999)
    assert await clockwork.schedules.lead("b", 3_000) is None
    clockwork.clock.turn(1)
    second = await led(clockwork, "b")
    assert second == Leadership("b", first.epoch + 1)
    await clockwork.schedules.resign(first)
    assert await clockwork.schedules.lead("a", 3_000) is None
    await clockwork.schedules.resign(second)
    assert await led(clockwork, "a") == Leadership("a", first.epoch + 2)


async def test_leadership_goes_to_one_of_many_at_once(clockwork: Clockwork) -> None:
    """Only one of many candidates that request the leadership at the same time gets it."""
    asked = [clockwork.schedules.lead(f"n{number}", 3_000) for number in range(20)]
    assert len([found for found in await asyncio.gather(*asked) if found]) == 1


async def test_tick_of_a_leader_whose_time_is_over_is_refused(clockwork: Clockwork) -> None:
    """A tick of a former leader is refused, with or without a successor, and the tick stays due."""
    await clockwork.set(every_ms=MINUTE)
    stale = await led(clockwork, "paused")
    clockwork.clock.turn(MINUTE)
    with pytest.raises(FailedPreconditionError, match="is not the leader any more") as refused:
        await clockwork.schedules.tick(stale)
    assert refused.value.reason == "NOT_LEADING"
    successor = await led(clockwork, "next")
    with pytest.raises(FailedPreconditionError):
        await clockwork.schedules.tick(stale)
    assert [await clockwork.schedules.tick(successor) for _ in range(2)] == ["fired", ""]
    with pytest.raises(FailedPreconditionError):
        await clockwork.schedules.tick(Leadership("next", stale.epoch))
    assert len(await clockwork.jobs()) == 1


async def test_leaders_fire_each_tick_once_through_takeovers(store: PostgresStore) -> None:
    """Leaders that replace each other fire every tick exactly once."""
    await store.schedules.set(SPEC)
    leaders = {name: CronLeader(store.schedules, name, interval_s=0.05, lease_ms=MINUTE) for name in "abc"}
    for leader in leaders.values():
        leader.start()
    epochs = []
    for _ in range(3):
        await _ticks(store, len(await _ticks(store)) + 1)
        (name,) = [name for name, leader in leaders.items() if leader.is_leading]
        epochs.append(leaders[name].epoch)
        await leaders[name].stop()
        assert (leaders[name].is_leading, leaders[name].epoch) == (False, 0)
        leaders[name] = CronLeader(store.schedules, f"{name}{len(epochs)}", interval_s=0.05, lease_ms=MINUTE)
        leaders[name].start()
    for leader in leaders.values():
        await leader.stop()
    ticks = await _ticks(store)
    assert epochs == sorted(set(epochs))
    assert ticks == [ticks[0] + number * SECOND for number in range(len(ticks))]
    view = await store.schedules.get("s")
    assert (view.fired, view.skipped, view.missed) == (len(ticks), 0, 0)
    assert len(await _column(store, "SELECT id FROM holdfast.jobs")) == len(ticks)


async def test_frozen_leader_is_replaced_and_finds_out(store: PostgresStore) -> None:
    """A leader that was stalled for longer than its lease fires nothing after it, and later becomes leader again."""
    plans, frost, thaw = store.schedules, asyncio.Event(), asyncio.Event()

    class Frozen:
        """A store that stalls before its next tick."""

        def __getattr__(self, name: str) -> object:
            return getattr(plans, name)

        async def tick(self, leadership: Leadership) -> str:
            frost.set()
            await thaw.wait()
            return await plans.tick(leadership)

    await plans.set(SPEC)
    frozen = CronLeader(Frozen(), "frozen", interval_s=0.05, lease_ms=300)  # type: ignore[arg-type]
    frozen.start()
    await frost.wait()
    other = CronLeader(plans, "other", interval_s=0.05, lease_ms=MINUTE)
    other.start()
    await happens(now(lambda: other.ticks["fired"]))
    thaw.set()
    count = other.ticks["fired"]
    await happens(now(lambda: other.ticks["fired"] > count))
    assert (frozen.is_leading, frozen.ticks["fired"]) == (False, 0)
    await other.stop()
    await happens(now(lambda: frozen.ticks["fired"]))
    await frozen.stop()
    ticks = await _ticks(store)
    assert ticks == [ticks[0] + number * SECOND for number in range(len(ticks))]


async def test_leader_survives_an_outage_of_the_database(
    store: PostgresStore, database: str, postgres: PrivatePostgres
) -> None:
    """A leader loses its leadership while the database refuses connections, and fires each due tick once afterwards."""
    name = database.rpartition("/")[2].partition("?")[0]
    async with (
        await open_patiently(database) as its_store,
        await psycopg.AsyncConnection.connect(postgres.url("postgres"), autocommit=True) as other,
    ):
        wait_for_connections(its_store, HURRY_S)
        await store.schedules.set(SPEC)
        leader = CronLeader(its_store.schedules, "a", interval_s=0.05, lease_ms=300)
        leader.start()
        await _ticks(store, 1)
        await other.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false'.encode())
        await other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        await happens(now(lambda: not leader.is_leading))
        await other.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true'.encode())
        before = leader.ticks["fired"]
        await happens(now(lambda: leader.ticks["fired"] > before + 1))
        await happens(now(lambda: leader.is_leading))
        await leader.stop()
        ticks = await _ticks(store)
    assert ticks == [ticks[0] + number * SECOND for number in range(len(ticks))]


async def test_leader_goes_by_the_clock_of_the_database(clockwork: Clockwork) -> None:
    """The leader fires the ticks that are due by the database's clock, also when that is in another year."""
    clockwork.clock.turn(5_000 * DAY)
    await clockwork.set(cron="0 9")
    leader = CronLeader(clockwork.schedules, "a", interval_s=0.02, lease_ms=MINUTE)
    leader.start()
    await happens(now(lambda: leader.is_leading))
    assert leader.ticks == {}
    clockwork.clock.turn(9 * 60 * MINUTE)
    await happens(now(lambda: leader.ticks["fired"]))
    await leader.stop()
    assert len(await clockwork.jobs()) == 1


async def test_stores_over_one_database_share_everything(store: PostgresStore, database: str) -> None:
    """The leader of one store fires a schedule that was set through another store of the same database."""
    async with await open_patiently(database) as second:
        leader = CronLeader(second.schedules, "a", interval_s=0.05, lease_ms=3_000)
        leader.start()
        await happens(now(lambda: leader.is_leading))
        await store.schedules.set(SPEC)
        await _ticks(store, 1)
        await leader.stop()


@pytest.mark.parametrize("takeover_ms", [300, 1_500, TAKEOVER_MS])
def test_leadership_changes_hands_within_its_interval(takeover_ms: int) -> None:
    """The lease and one check interval last less than the takeover time, and a lease lasts over three intervals."""
    lease_ms, interval_s = terms(takeover_ms)
    assert lease_ms + 1_000 * interval_s < takeover_ms
    assert 3 * 1_000 * interval_s < lease_ms


def now(read: Callable[[], object]) -> Callable[[], Awaitable[object]]:
    async def ask() -> object:
        return read()

    return ask


async def _ticks(store: PostgresStore, count: int = 0) -> list[int]:
    """Waits for at least `count` fired ticks and returns all fired ticks."""

    async def read() -> list[int]:
        return await _column(store, "SELECT tick_ms FROM holdfast.ticks WHERE outcome = 'fired' ORDER BY tick_ms")

    return await happens(read, lambda ticks: len(ticks) >= count)


async def _column(store: PostgresStore, statement: str) -> list[int]:
    async def ask(connection: StoreConnection) -> list[int]:
        return [row[0] for row in await (await connection.execute(statement.encode())).fetchall()]

    return await store.database.ask(ask)
