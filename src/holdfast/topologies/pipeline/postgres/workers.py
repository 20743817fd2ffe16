"""`WorkerStore` on PostgreSQL: workers and their queue processes."""

from collections.abc import Collection, Mapping, Sequence

from holdfast.errors import NotFoundError
from holdfast.postgres.statements import statements
from holdfast.topologies.pipeline.backend.store import QueueAssignment, WorkerKind
from holdfast.topologies.pipeline.postgres.connections import Database, StoreConnection
from holdfast.topologies.pipeline.postgres.outcomes import lock_held, revoked, settle

_SQL = statements(__package__, "administration")


class PostgresWorkerStore:
    """The places of workers: coordinators write them, other roles read them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, places: Sequence[QueueAssignment]) -> None:
        """Saves places in one transaction, in the order of their workers, so that two coordinators do not deadlock."""
        rows = [
            {
                "worker": place.worker,
                "session": place.session,
                "routes": list(place.kind.routes),
                "job_queues": list(place.kind.queues),
                "slots": place.slots,
                "places": list(place.queues),
                "is_draining": place.is_draining,
                "heard_ms_ago": place.heard_ms_ago,
            }
            for place in sorted(places, key=lambda place: place.worker)
        ]

        async def work(connection: StoreConnection) -> None:
            await connection.cursor().executemany(_SQL["save_places"], rows)

        if rows:
            await self._database.transact(work)

    async def remove(self, workers: Collection[str]) -> None:
        """Deletes the places of these workers; unknown workers are ignored."""

        async def ask(connection: StoreConnection) -> None:
            await connection.execute(_SQL["remove_places"], {"workers": sorted(workers)})

        await self._database.ask(ask)

    async def lose(self, worker: str, session: str, silent_ms: int) -> bool:
        """Runs one transaction under the lock of the worker's place."""

        async def work(connection: StoreConnection) -> bool:
            cursor = await connection.execute(_SQL["lock_place"], {"worker": worker, "silent_ms": silent_ms})
            if await cursor.fetchone() != (session, False):
                return False
            jobs = await lock_held(connection, worker)
            if jobs:
                await settle(connection, [revoked(job, "disconnected", is_spent=True) for job in jobs], jobs[0].now_ms)
            await connection.execute(_SQL["remove_places"], {"workers": [worker]})
            return True

        return await self._database.transact(work)

    async def all(self) -> list[QueueAssignment]:
        """Returns the places as last saved."""

        async def ask(connection: StoreConnection) -> list[QueueAssignment]:
            rows = await (await connection.execute(_SQL["all_places"], binary=True)).fetchall()
            return [
                QueueAssignment(worker, session, WorkerKind(tuple(routes), tuple(queues)), slots, tuple(places), *rest)
                for worker, session, routes, queues, slots, places, *rest in rows
            ]

        return await self._database.ask(ask)

    async def leases(self) -> Mapping[str, int]:
        """Counts the entries of the index of running jobs."""

        async def ask(connection: StoreConnection) -> dict[str, int]:
            return dict(await (await connection.execute(_SQL["leases"], binary=True)).fetchall())

        return await self._database.ask(ask)

    async def ask_to_drain(self, worker: str) -> None:
        """Marks a worker as draining, until it leaves or begins another session."""

        async def ask(connection: StoreConnection) -> bool:
            cursor = await connection.execute(_SQL["ask_to_drain"], {"worker": worker})
            return await cursor.fetchone() is not None

        if "\0" in worker or not await self._database.ask(ask):
            message = f"no worker {worker[:80]!r} is connected; see `holdfast worker list`"
            raise NotFoundError(message, reason="WORKER_NOT_FOUND")
