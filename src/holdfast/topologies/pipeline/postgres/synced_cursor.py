"""Cursors of transactions that no client can keep open by standing still.

In a pipeline the server waits for more without a word, and none of its timeouts runs: a process that is stopped there
would keep its locks for as long as it is stopped. So whoever waits for rows ends the batch first; then the server takes
the transaction for idle, and `idle_in_transaction_session_timeout` counts. What is left is the moment in which a batch
is being sent.
"""

from typing import Any

from psycopg import AsyncCursor

Row = tuple[Any, ...]


class SyncedCursor(AsyncCursor[Row]):
    """A cursor that ends the batch before it waits for its rows."""

    async def fetchone(self) -> Row | None:
        """The next row."""
        await self._end_batch()
        return await super().fetchone()

    async def fetchall(self) -> list[Row]:
        """The rows that are left."""
        await self._end_batch()
        return await super().fetchall()

    async def _end_batch(self) -> None:
        pipeline = self._conn._pipeline  # noqa: SLF001 - psycopg hands it to nobody but who began it
        if pipeline is not None and self.pgresult is None:
            await pipeline.sync()
