"""Notifications about commits of other processes: LISTEN on a separate connection, which is checked periodically."""

from asyncio import get_running_loop
from collections.abc import AsyncIterator

from holdfast.postgres.failures import in_our_words
from holdfast.topologies.pipeline.postgres.connections import Database, cut_off

#: The connection is checked after this time without a notification, and must respond within `_ANSWER_S`.
_QUIET_S = 5.0
_ANSWER_S = 3.0


async def listen(database: Database, channel: str) -> AsyncIterator[str]:
    """Yields the payloads of the notifications on a channel; an empty one means that anything may have changed.

    An empty one comes first, as soon as the connection listens. Ends with `UnavailableError`, never silently.
    """
    connection = await database.connect()
    loop = get_running_loop()
    try:
        with in_our_words():
            await connection.execute(f"LISTEN {channel}".encode(), prepare=False)
            yield ""
            while True:
                async for notice in connection.notifies(timeout=_QUIET_S):
                    yield notice.payload
                cut = loop.call_later(_ANSWER_S, cut_off, connection)
                try:
                    await connection.execute(b"SELECT 1", prepare=False)
                finally:
                    cut.cancel()
    finally:
        await connection.close()
