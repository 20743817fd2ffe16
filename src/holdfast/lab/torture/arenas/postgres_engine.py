"""The PostgreSQL that the pipeline stands on; it comes back by itself."""

import asyncio
from pathlib import Path

import psycopg

from holdfast.lab.compare.process_tree import argv, tree
from holdfast.lab.torture.arenas.deaths import Deaths
from holdfast.process.private_postgres import PrivatePostgres

_LOOK_S = 0.05
_CONNECT_S = 5
#: One that is not back by then never will be.
_BACK_S = 120.0
#: Tests kill the server, never the machine, but slow disks are to be felt: it syncs.
_SETTINGS = {"shared_buffers": "64MB", "max_wal_size": "256MB"}


class PostgresEngine:
    """Implements the port `Engine`."""

    name = "postgres"

    def __init__(self, directory: Path, deaths: Deaths) -> None:
        self._server = PrivatePostgres(directory, _SETTINGS)
        self._deaths = deaths
        self._known = 0

    async def start(self) -> str:
        """Its address, once it answers."""
        url = await asyncio.to_thread(self._server.start)
        self._known = self._server.pid
        return url

    async def stop(self) -> None:
        """In good order."""
        self.notice()
        self._known = 0
        await asyncio.to_thread(self._server.stop)

    def pids(self) -> list[int]:
        """The server and all its processes; empty while it is down."""
        return [pid for pid in tree(self._server.pid) if argv(pid)] if self._known else []

    async def crash(self) -> None:
        """As `pg_ctl stop -m immediate` does; returns once it answers again."""
        old = self._server.pid
        self._deaths.expect(old)
        self._server.crash()
        async with asyncio.timeout(_BACK_S):
            while self._server.pid == old or not await asyncio.to_thread(self._answers):  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(_LOOK_S)
        self.notice()

    def notice(self) -> None:
        """Says so if it is another one than before, and nobody had ended that."""
        if self._known and self._server.pid != self._known:
            self._deaths.ended(self.name, self._known, -1)
            self._known = self._server.pid

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self._server.url(), connect_timeout=_CONNECT_S) as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True
