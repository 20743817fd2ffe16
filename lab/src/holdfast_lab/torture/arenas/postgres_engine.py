"""The PostgreSQL server of the pipeline; it restarts automatically after a crash."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import LiteralString

import psycopg

from holdfast.process.private_postgres import PrivatePostgres
from holdfast_lab.measure.process_tree import argv, tree
from holdfast_lab.torture.arenas.expected_exits import ExpectedExits
from holdfast_lab.torture.ports import NotNowError

_LOOK_S = 0.05
_CONNECT_S = 5
#: Time limit for a restart.
_BACK_S = 120.0
_CUT: LiteralString = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
#: The server syncs, although no test cuts the machine's power: otherwise slow disks would have no effect.
_SETTINGS = {"shared_buffers": "64MB", "max_wal_size": "256MB"}


class PostgresEngine:
    """Implements the ports `Engine` and `Hideable`."""

    name = "postgres"

    def __init__(self, directory: Path, expected_exits: ExpectedExits) -> None:
        self._server = PrivatePostgres(directory, _SETTINGS)
        self._expected_exits = expected_exits
        self._known = 0

    async def start(self) -> str:
        """Starts the server, and returns its URL once it answers."""
        url = await asyncio.to_thread(self._server.start)
        self._known = self._server.pid
        return url

    async def stop(self) -> None:
        """Shuts the server down."""
        self.notice()
        self._known = 0
        await asyncio.to_thread(self._server.stop)

    def pids(self) -> list[int]:
        """The server and all its processes; empty while it is down."""
        return [pid for pid in tree(self._server.pid) if argv(pid)] if self._known else []

    async def crash(self) -> None:
        """Crashes the server as `pg_ctl stop -m immediate` does; returns once it answers again."""
        old = self._server.pid
        self._expected_exits.expect(old)
        self._server.crash()
        async with asyncio.timeout(_BACK_S):
            while self._server.pid == old or not await asyncio.to_thread(self._answers):  # noqa: ASYNC110 - no notification
                await asyncio.sleep(_LOOK_S)
        self.notice()

    @asynccontextmanager
    async def hidden(self) -> AsyncIterator[None]:
        """Renames the socket of the server and cuts every connection, until the block ends."""
        here, hidden = self._server.socket, self._server.socket.with_suffix(".hidden")
        try:
            connection = await psycopg.AsyncConnection.connect(self._server.url(), autocommit=True)
        except psycopg.OperationalError as error:
            raise NotNowError(f"{self.name}: {error}") from error
        async with connection:
            here.rename(hidden)
            try:
                await connection.execute(_CUT)
                yield
            finally:
                hidden.rename(here)

    def notice(self) -> None:
        """Records an exit if the server was replaced unexpectedly."""
        if self._known and self._server.pid != self._known:
            self._expected_exits.ended(self.name, self._known, -1)
            self._known = self._server.pid

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self._server.url(), connect_timeout=_CONNECT_S) as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True
