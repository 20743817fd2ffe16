"""`ClaimStore` on PostgreSQL: claims visible rows, takes back expired leases and deletes old jobs."""

from collections.abc import AsyncIterator, Collection
from typing import Any

from holdfast import limits
from holdfast.postgres.statements import statements
from holdfast.topologies.pipeline.backend.store import FullLane, Ticket, WorkerKind
from holdfast.topologies.pipeline.postgres.connections import Database, StoreConnection
from holdfast.topologies.pipeline.postgres.notification_listener import listen
from holdfast.topologies.pipeline.postgres.outcomes import lock_overdue, revoked, settle
from holdfast.topologies.pipeline.postgres.row_values import possible_ids

_SQL = statements(__package__, "claims")

#: The payload of a notification that concerns rows only.
_ROWS = "rows"
#: Up to this many tally rows, merging them costs more than it saves.
_TALLIES_KEPT = 200

#: How long a process may stall inside a transaction: shorter than the timeout of a statement that waits for it.
_PATIENCE_MS = 3_000


class PostgresClaimStore:
    """The store operations of watchers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(
        self, count: int, visibility_ms: int, kinds: Collection[WorkerKind], full: Collection[FullLane]
    ) -> list[Ticket]:
        """Claims rows in one statement. A crash of the database may undo it; the rows are then claimed again."""
        lanes = {(route, queue) for kind in kinds for route in kind.routes for queue in kind.queues or ("",)}
        if not lanes or count < 1:
            return []
        arguments: dict[str, Any] = {
            "count": count,
            "visibility_ms": visibility_ms,
            "routes": [route for route, _ in lanes],
            "queues": [queue for _, queue in lanes],
            "full_queues": [queue for queue, _, _ in full],
            "full_routes": [route for _, route, _ in full],
            "full_highs": [is_high for _, _, is_high in full],
            "usual": limits.PRIORITY_DEFAULT,
            "aging_ms": limits.AGING_MS_DEFAULT,
        }

        async def ask(connection: StoreConnection) -> list[Ticket]:
            cursor = await connection.execute(_SQL["claim"], arguments, binary=True)
            return [Ticket(*row) for row in await cursor.fetchall()]

        # Not repeatable: rows that a first try has claimed would stay hidden until their visibility timeout ends.
        return await self._database.ask(ask, is_repeatable=False)

    async def unclaim(self, job_ids: Collection[str], delay_ms: int) -> None:
        """Makes rows visible again: at their old place in the lane, or after a delay."""
        arguments = {"ids": possible_ids(list(job_ids)), "delay_ms": delay_ms}

        async def ask(connection: StoreConnection) -> None:
            await connection.execute(_SQL["unclaim"], arguments)

        await self._database.ask(ask)

    async def expire(self, count: int) -> int:
        """Takes back expired leases by the database's clock; skips rows that another watcher has locked.

        Terminates connections first that have stalled inside a transaction, because their locks block other processes.
        """

        async def cut_off(connection: StoreConnection) -> None:
            await connection.execute(_SQL["cut_off"], {"patience_ms": _PATIENCE_MS})

        async def work(connection: StoreConnection) -> int:
            jobs = await lock_overdue(connection, count)
            if jobs:
                outcomes = [revoked(job, "expired", is_spent=True) for job in jobs]
                await settle(connection, outcomes, jobs[0].now_ms)
            return len(jobs)

        await self._database.ask(cut_off)
        return await self._database.transact(work)

    async def retire(self, count: int, *, retain_ms: int, retain_failed_ms: int) -> int:
        """Deletes old jobs with their results and attempts; also merges the tallies."""
        arguments = {"count": count, "retain_ms": retain_ms, "retain_failed_ms": retain_failed_ms}

        async def ask(connection: StoreConnection) -> int:
            cursor = await connection.execute(_SQL["retire"], arguments)
            (retired,) = await cursor.fetchone() or (0,)
            await connection.execute(_SQL["count_up"], {"kept": _TALLIES_KEPT})
            return int(retired)

        return await self._database.ask(ask)

    async def next_visible_ms(self) -> int | None:
        """Reads only one row of each lane."""

        async def ask(connection: StoreConnection) -> int | None:
            (wait_ms,) = await (await connection.execute(_SQL["next_visible"])).fetchone() or (None,)
            return None if wait_ms is None else max(0, int(wait_ms))

        return await self._database.ask(ask)

    async def due(self) -> AsyncIterator[bool]:
        """Yields for the first time as soon as no notification can be missed any more."""
        async for notice in listen(self._database, "holdfast_due"):
            yield notice != _ROWS
