"""The complete store on one PostgreSQL database."""

from typing import Self

from holdfast.core.state_change import LogChanges
from holdfast.topologies.pipeline.postgres.claims import PostgresClaimStore
from holdfast.topologies.pipeline.postgres.connections import Database, StoreConnection
from holdfast.topologies.pipeline.postgres.jobs import PostgresJobStore
from holdfast.topologies.pipeline.postgres.leases import PostgresLeaseStore
from holdfast.topologies.pipeline.postgres.notifier import StoreNotifier
from holdfast.topologies.pipeline.postgres.queues import PostgresQueueStore
from holdfast.topologies.pipeline.postgres.schedules import PostgresScheduleStore
from holdfast.topologies.pipeline.postgres.workers import PostgresWorkerStore


class PostgresStore:
    """The parts of the store, which share one pool of connections."""

    def __init__(self, database: Database) -> None:
        self._database, self._teller = database, StoreNotifier(database)
        self.rows = PostgresJobStore(database, self._teller)
        self.claims = PostgresClaimStore(database)
        self.leases = PostgresLeaseStore(database, self._teller)
        self.schedules = PostgresScheduleStore(database)
        self.workers = PostgresWorkerStore(database)
        self.queues = PostgresQueueStore(database)

    @property
    def database(self) -> Database:
        """The connections that all parts share."""
        return self._database

    async def cluster_id(self) -> str:
        """Returns the permanent id of this database."""

        async def ask(connection: StoreConnection) -> str:
            row = await (await connection.execute(b"SELECT cluster_id::text FROM holdfast.meta")).fetchone()
            assert row is not None
            return str(row[0])

        return await self._database.ask(ask)

    async def close(self) -> None:
        """Sends the pending notifications, then closes every connection."""
        await self._teller.close()
        await self._database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def open_store(
    url: str,
    *,
    pool_size: int = 8,
    name: str = "holdfast",
    statement_ms: int = 5_000,
    log: LogChanges | None = None,
) -> PostgresStore:
    """Connects, migrates the database and opens the store; operators see `name` in `pg_stat_activity`.

    `log` receives the transitions of each commit.
    """
    database = Database(url, pool_size=pool_size, name=name, statement_ms=statement_ms, log=log)
    await database.open()
    return PostgresStore(database)
