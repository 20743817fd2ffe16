"""The clock of processes and of their PostgreSQL: both are set at nearly the same time.

To set the database's clock, a background task replaces its time function; it retries while the database is down.
"""

import asyncio
import contextlib
from typing import LiteralString

import psycopg
from psycopg import sql

from holdfast_lab.torture.ports import ArenaClock

_AGAIN_S = 0.2
_CONNECT_S = 2
_CLOSE_S = 20.0
_TIME: LiteralString = """
CREATE OR REPLACE FUNCTION holdfast.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + {} $$"""


class DatabaseClock:
    """Implements the port `ArenaClock`; `close` waits until the database has the last setting."""

    def __init__(self, clock: ArenaClock) -> None:
        self._clock = clock
        self._url = ""
        self._wanted_ms = 0
        self._said_ms = 0
        self._telling: asyncio.Task[None] | None = None
        #: Whether the clock was ever set: then times in the database cannot be compared.
        self.was_stepped = False

    def connect(self, url: str) -> None:
        """Sets the address of the database, once it runs."""
        self._url = url

    def step(self, ms: int) -> None:
        """Sets the clock ahead of the true time (or back, if negative); 0 sets it right."""
        self._clock.step(ms)
        self._wanted_ms = ms
        self.was_stepped |= ms != 0
        if self._url and (self._telling is None or self._telling.done()):
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def close(self) -> None:
        """Waits until the database has the last setting, or until a timeout."""
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
