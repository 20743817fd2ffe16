"""Hearing of what others have committed: LISTEN on a connection of its own, asked now and then if it still lives."""

from asyncio import get_running_loop
from collections.abc import AsyncIterator

from holdfast.topologies.pipeline.postgres.connections import Database, cut_off
from holdfast.topologies.pipeline.postgres.failures import in_our_words

#: How long nothing is said before the connection is asked, and how long it may take to answer.
_QUIET_S = 5.0
_ANSWER_S = 3.0


async def listen(database: Database, channel: str) -> AsyncIterator[str]:
    """What is said on the channel; an empty one first, when it can be heard, and whenever it may mean anything.

    Ends with `UnavailableError`, never silently.
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
