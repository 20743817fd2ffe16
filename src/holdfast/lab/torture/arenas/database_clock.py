"""The clock of processes and of the PostgreSQL that they stand around: both are stepped together, or nearly so.

The database is told by replacing its function of the time, in the background: it may be away just now.
"""

import asyncio
import contextlib
from typing import LiteralString

import psycopg
from psycopg import sql

from holdfast.lab.torture.ports import Clockwork

_AGAIN_S = 0.2
_CONNECT_S = 2
_CLOSE_S = 20.0
_TIME: LiteralString = """
CREATE OR REPLACE FUNCTION holdfast.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + {} $$"""


class DatabaseClock:
    """Implements the port `Clockwork`; `close` waits until the database has heard the last word."""

    def __init__(self, clock: Clockwork) -> None:
        self._clock = clock
        self._url = ""
        self._wanted_ms = 0
        self._said_ms = 0
        self._telling: asyncio.Task[None] | None = None
        #: Whether what the database says of times can be compared.
        self.was_stepped = False

    def connect(self, url: str) -> None:
        """From now on the database is there."""
        self._url = url

    def step(self, ms: int) -> None:
        """So far ahead (or back) of the true time from now on; 0 is true."""
        self._clock.step(ms)
        self._wanted_ms = ms
        self.was_stepped |= ms != 0
        if self._url and (self._telling is None or self._telling.done()):
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def close(self) -> None:
        """The database has heard the last word, unless it is away for good."""
        if self._telling is not None:
            await asyncio.wait([self._telling], timeout=_CLOSE_S)
            self._telling.cancel()

    async def _tell(self) -> None:
        while self._said_ms != self._wanted_ms:
            wanted_ms = self._wanted_ms
            with contextlib.suppress(psycopg.OperationalError, psycopg.InterfaceError):
                await asyncio.to_thread(self._say, wanted_ms)
                self._said_ms = wanted_ms
                continue
            await asyncio.sleep(_AGAIN_S)

    def _say(self, ms: int) -> None:
        with psycopg.connect(self._url, autocommit=True, connect_timeout=_CONNECT_S) as connection:
            connection.execute(sql.SQL(_TIME).format(sql.Literal(ms)))
