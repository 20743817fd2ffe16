"""A pool of database connections, and transactions with a time limit.

Invariants:
- Every statement has a timeout of the server. If the server does not respond even then, the connection is shut down.
  The outcome is then unknown, so only repeatable work is repeated.
- No psycopg error leaves this package.
- The process that commits transitions logs them after the commit. If the response to a commit is lost, they are not
  logged.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.conninfo import make_conninfo
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper
from psycopg_pool import AsyncConnectionPool

from holdfast.core.state_change import LogChanges, StateChange
from holdfast.errors import InvalidArgumentError
from holdfast.postgres.failures import UNDONE, in_our_words, meaning_of
from holdfast.postgres.migrator import migrate, read_migrations
from holdfast.topologies.pipeline.postgres.arrays import Packed, PackedDumper

T = TypeVar("T")
Row = tuple[Any, ...]


class SyncedCursor(AsyncCursor[Row]):
    """A cursor that ends the batch before it waits for its rows.

    In psycopg's pipeline mode the server waits for more statements, and none of its timeouts runs: a client process
    that is stopped there would keep its locks for as long as it is stopped. After the end of a batch the server counts
    `idle_in_transaction_session_timeout`. The moment in which a batch is being sent stays uncovered.
    """

    async def fetchone(self) -> Row | None:
        """Returns the next row."""
        await self._end_batch()
        return await super().fetchone()

    async def fetchall(self) -> list[Row]:
        """Returns the remaining rows."""
        await self._end_batch()
        return await super().fetchall()

    async def _end_batch(self) -> None:
        pipeline = self._conn._pipeline  # noqa: SLF001 - psycopg has no public way to get it
        if pipeline is not None and self.pgresult is None:
            await pipeline.sync()


class StoreConnection(AsyncConnection[tuple[Any, ...]]):
    """A connection that collects the changes of state of its transaction, to be logged after the commit."""

    #: Whether changes are logged at all.
    keeps_changes = False

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - as psycopg has them
        super().__init__(*arguments, **options)
        self.changed: list[StateChange] = []


Work = Callable[[StoreConnection], Awaitable[T]]

#: How long a caller waits for a connection of the pool, and how long connecting may take.
_ACQUIRE_S = 0.8
_CONNECT_S = 3
#: Work that takes longer than this multiple of the statement timeout has its connection shut down.
_SILENCE = 1.4
#: How long the difference between this process's clock and the database's is cached.
_CLOCK_S = 60.0
#: Tries after deadlocks; each deadlock aborts one of its transactions.
_ATTEMPTS = 5

#: Every statement has an index; a plan without it, made while tables were small, must not be kept.
_SETTINGS = (
    "idle_in_transaction_session_timeout=3000",
    "enable_seqscan=off",
    "enable_bitmapscan=off",
    "enable_hashjoin=off",
    "enable_mergejoin=off",
    "jit=off",
)

#: Detect a dead server even on a connection that only listens.
_CONNECTING: dict[str, Any] = {
    "connect_timeout": _CONNECT_S,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 8_000,
}


class Database:
    """Connections to one database."""

    def __init__(
        self, url: str, *, pool_size: int, name: str, statement_ms: int = 5_000, log: LogChanges | None = None
    ) -> None:
        """`log` receives the transitions of each commit."""
        options = " ".join(f"-c {setting}" for setting in (f"statement_timeout={statement_ms}", *_SETTINGS))
        try:
            self._url = make_conninfo(url, application_name=name, options=options, **_CONNECTING)
        except psycopg.Error as error:
            message = f"the database must be a URL like postgresql://user@host/name: {error}".strip()
            raise InvalidArgumentError(message, reason="DATABASE_URL_INVALID") from None
        self._log = log
        self._silence_s = _SILENCE * statement_ms / 1_000
        self._clock_ms = 0
        self._clock_until_s = -1.0
        # Callers receive the errors; psycopg's own log lines would repeat them in another format.
        logging.getLogger("psycopg").addHandler(logging.NullHandler())
        self._pool: AsyncConnectionPool[StoreConnection] = AsyncConnectionPool(
            self._url,
            connection_class=StoreConnection,
            kwargs={"autocommit": True, "prepare_threshold": 0, "cursor_factory": SyncedCursor},
            min_size=1,
            max_size=pool_size,
            timeout=_ACQUIRE_S,
            # The pool connects when a caller needs a connection, not by itself with growing pauses.
            reconnect_timeout=0,
            configure=self._configure,
            open=False,
        )

    async def open(self) -> None:
        """Migrates the database if it is older than this program, and opens the pool."""
        await asyncio.to_thread(self._migrate)
        await self._pool.open()

    def _migrate(self) -> None:
        with in_our_words(), psycopg.connect(self._url, autocommit=True) as connection:
            migrate(connection, read_migrations(__package__))

    async def close(self) -> None:
        """Closes every connection."""
        await self._pool.close()

    async def _configure(self, connection: StoreConnection) -> None:
        await configure(connection)
        connection.keeps_changes = self._log is not None

    async def connect(self) -> StoreConnection:
        """Opens a connection outside the pool, for LISTEN; the caller closes it."""
        with in_our_words():
            connection = await StoreConnection.connect(self._url, autocommit=True, prepare_threshold=0)
        await configure(connection)
        return connection

    async def ask(self, work: Work[T], *, is_repeatable: bool = True) -> T:
        """Runs `work` on a connection where each statement is its own transaction, and returns its result."""
        return await self._run(work, is_repeatable=is_repeatable)

    async def transact(self, work: Work[T], *, is_repeatable: bool = True) -> T:
        """Runs `work` in one transaction, commits it, and returns its result.

        It is repeated after a deadlock and, if it is repeatable, after a lost connection, so `work` must change
        nothing but the database.
        """

        async def within(connection: StoreConnection) -> T:
            async with connection.pipeline(), connection.transaction():
                return await work(connection)

        return await self._run(within, is_repeatable=is_repeatable)

    async def now_ms(self) -> int:
        """Returns the approximate time of the database, from a cached difference between the clocks."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._clock_until_s:
            asked_s = loop.time()
            read_ms = await self.ask(_read_clock)
            self._clock_ms = read_ms - round(asked_s * 1_000)
            self._clock_until_s = asked_s + _CLOCK_S
        return self._clock_ms + round(loop.time() * 1_000)

    async def _run(self, work: Work[T], *, is_repeatable: bool) -> T:
        failure: psycopg.Error | None = None
        was_cut = False
        for _ in range(_ATTEMPTS):
            try:
                return await self._once(work)
            except UNDONE as error:
                failure = error
            except _CutError as cut:
                failure = cut.cause
                # Try once more, with new connections: after a restart of the server the pooled ones only look alive.
                await self._pool.drain()
                if was_cut or not is_repeatable:
                    break
                was_cut = True
            except psycopg.Error as error:
                failure = error
                break
        assert failure is not None
        raise meaning_of(failure) from failure

    async def _once(self, work: Work[T]) -> T:
        async with self._pool.connection() as connection:
            silence = asyncio.get_running_loop().call_later(self._silence_s, cut_off, connection)
            connection.changed = []
            try:
                done = await work(connection)
            except UNDONE:
                raise
            except psycopg.Error as error:
                if connection.broken:
                    raise _CutError(error) from error
                raise
            finally:
                silence.cancel()
            changed = connection.changed
        if self._log is not None and changed:
            self._log(changed)
        return done


class _CutError(Exception):
    """The connection broke; it is unknown whether the work was done."""

    def __init__(self, cause: psycopg.Error) -> None:
        super().__init__(str(cause))
        self.cause = cause


async def _read_clock(connection: StoreConnection) -> int:
    row = await (await connection.execute(b"SELECT holdfast.now_ms()")).fetchone()
    assert row is not None
    return int(row[0])


async def configure(connection: StoreConnection) -> None:
    """Registers dumpers: every integer is sent as bigint, so that a statement is prepared only once.

    Packed arrays are sent unchanged.
    """
    connection.adapters.register_dumper(int, Int8Dumper)
    connection.adapters.register_dumper(int, Int8BinaryDumper)
    connection.adapters.register_dumper(Packed, PackedDumper)


def cut_off(connection: StoreConnection) -> None:
    """Shuts the connection down, so that its caller fails; a cancel would wait for the server again."""
    try:
        handle = socket.socket(fileno=os.dup(connection.pgconn.socket))
    except (psycopg.Error, OSError):  # it is already closed
        return
    with handle:
        handle.shutdown(socket.SHUT_RDWR)
