"""`QueueStore` on PostgreSQL: queues as operators see them.

Invariants: jobs that a pause has held up become visible when it ends; no job enters a queue after its drain was
confirmed. The number of jobs in a state is the sum of tallies, which every change of a state adds to; it is never
recounted.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast import limits
from holdfast.core.lifecycle import State
from holdfast.core.model import QueueMode
from holdfast.core.overview import QueueView, most_common
from holdfast.core.validation import check_queue, check_reason
from holdfast.errors import ResourceExhaustedError, UnavailableError
from holdfast.postgres.statements import statements
from holdfast.topologies.pipeline.postgres.connections import Database, StoreConnection
from holdfast.topologies.pipeline.postgres.outcomes import lock_waiting, queued_canceled, settle
from holdfast.topologies.pipeline.postgres.row_values import storable

_SQL = statements(__package__, "administration")
_LAST_NUMBER = statements(__package__, "leases")["last_number"]

#: How long a submission in progress may take, and the interval of the checks for it.
_WRITERS_S, _LOOK_S = 3.0, 0.01


class PostgresQueueStore:
    """The store operations on queues."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def queues(self) -> list[QueueView]:
        """Reads the tallies and some rows of each lane."""

        async def ask(connection: StoreConnection) -> list[QueueView]:
            counted = {"lane_max": limits.TYPE_JOBS_COUNTED_MAX, "all_max": limits.TYPES_COUNTED_MAX}
            rows = await (await connection.execute(_SQL["queues"], counted, binary=True)).fetchall()
            return [*map(_view, rows)]

        return await self._database.ask(ask)

    async def states(self) -> Mapping[State, int]:
        """Reads the tallies."""

        async def ask(connection: StoreConnection) -> dict[State, int]:
            rows = await (await connection.execute(_SQL["states"], binary=True)).fetchall()
            counts = {State(state): int(jobs) for state, jobs in rows}
            return {state: counts.get(state, 0) for state in State}

        return await self._database.ask(ask)

    async def now_ms(self) -> int:
        """Returns the database's time."""
        return await self._database.now_ms()

    async def set_mode(self, queue: str, mode: QueueMode, reason: str) -> None:
        """Stores the mode; an open queue has no row."""
        refusal = check_queue(queue) or check_reason(reason)
        if refusal:
            raise refusal.error()

        async def work(connection: StoreConnection) -> None:
            row = await (await connection.execute(_SQL["lock_mode"], {"queue": queue})).fetchone()
            if mode == QueueMode.OPEN:
                await connection.execute(_SQL["open_queue"], {"queue": queue})
            else:
                await _close(connection, queue, mode, reason)
            if mode != QueueMode.PAUSED:
                if row is not None and row[0] == QueueMode.PAUSED:
                    await connection.execute(_SQL["show_claimed"], {"queue": queue})
                await connection.execute(_SQL["told_due"])

        await self._database.transact(work)
        if mode == QueueMode.DRAINING:
            await self._outlast_writers(queue)

    async def _outlast_writers(self, queue: str) -> None:
        """Waits for submissions that began before the drain; when it returns, no job can enter the queue."""
        writers = await self._database.ask(_writers)
        try:
            async with asyncio.timeout(_WRITERS_S):
                while writers:
                    await asyncio.sleep(_LOOK_S)
                    writers &= await self._database.ask(_writers)
        except TimeoutError:
            message = f"the queue {queue!r} drains, but a submission that began before may still add jobs; try again"
            raise UnavailableError(message, reason="QUEUE_STILL_WRITTEN") from None

    async def purge(self, queue: str, reason: str) -> int:
        """Cancels the waiting jobs; jobs that are submitted during the purge are left alone."""
        refusal = check_queue(queue) or check_reason(reason)
        if refusal:
            raise refusal.error()
        last = await self._database.ask(_last_number)

        async def work(connection: StoreConnection) -> int:
            jobs = await lock_waiting(connection, queue, last, limits.BATCH_JOBS_MAX)
            if jobs:
                await settle(connection, [queued_canceled(job, reason) for job in jobs], jobs[0].now_ms)
            return len(jobs)

        canceled = 0
        while count := await self._database.transact(work):
            canceled += count
        return canceled


def _view(row: Sequence[Any]) -> QueueView:
    name, mode, reason, ready, delayed, running, oldest_age_ms, types = row
    return QueueView(name, QueueMode(mode), reason, ready, delayed, running, oldest_age_ms, most_common(types))


async def _close(connection: StoreConnection, queue: str, mode: QueueMode, reason: str) -> None:
    """Pauses or drains a queue, unless too many queues are paused or draining."""
    (others,) = await (await connection.execute(_SQL["closed_queues"], {"queue": queue})).fetchone() or (0,)
    if others >= limits.QUEUES_CLOSED_MAX:
        message = f"the limit of {limits.QUEUES_CLOSED_MAX} paused or draining queues is reached; open some of them"
        raise ResourceExhaustedError(message, reason="TOO_MANY_CLOSED_QUEUES")
    await connection.execute(_SQL["set_mode"], {"queue": queue, "mode": int(mode), "reason": storable(reason)})


async def _writers(connection: StoreConnection) -> set[str]:
    return {row[0] for row in await (await connection.execute(_SQL["writers"])).fetchall()}


async def _last_number(connection: StoreConnection) -> int:
    (number,) = await (await connection.execute(_LAST_NUMBER)).fetchone() or (0,)
    return int(number)
