"""Connections: a pool of them, and transactions that never hang.

Invariants:
- A transaction ends within its deadline: the server is told to give up first, and a connection that says nothing even
  then is cut. Its outcome is unknown, so only what may be repeated is repeated.
- Nothing of psycopg leaves: every error is one of ours.
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
from holdfast.topologies.pipeline.postgres.arrays import Packed, PackedDumper
from holdfast.topologies.pipeline.postgres.failures import UNDONE, in_our_words, meaning_of
from holdfast.topologies.pipeline.postgres.migrator import known_migrations, migrate

T = TypeVar("T")
Row = tuple[Any, ...]


class SyncedCursor(AsyncCursor[Row]):
    """A cursor that ends the batch before it waits for its rows.

    In psycopg's pipeline mode the server waits for more statements, and none of its timeouts runs: a client process
    that is stopped there would keep its locks for as long as it is stopped. After the end of a batch the server counts
    `idle_in_transaction_session_timeout`. The moment in which a batch is being sent stays uncovered.
    """

    async def fetchone(self) -> Row | None:
        """The next row."""
        await self._end_batch()
        return await super().fetchone()

    async def fetchall(self) -> list[Row]:
        """The rows that are left."""
        await self._end_batch()
        return await super().fetchall()

    async def _end_batch(self) -> None:
        pipeline = self._conn._pipeline  # noqa: SLF001 - psycopg has no public way to get it
        if pipeline is not None and self.pgresult is None:
            await pipeline.sync()


class StoreConnection(AsyncConnection[tuple[Any, ...]]):
    """A connection that collects the changes of state of its transaction, to be logged after the commit."""

    #: Whether they are logged at all.
    keeps_changes = False

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - as psycopg has them
        super().__init__(*arguments, **options)
        self.changed: list[StateChange] = []


Work = Callable[[StoreConnection], Awaitable[T]]

#: How long a caller waits for a connection, and how long one may take to be made.
_ACQUIRE_S = 0.8
_CONNECT_S = 3
#: A connection that is silent for so many times what a statement may take is cut.
_SILENCE = 1.4
#: How long the difference between this machine's time and the database's is relied on.
_CLOCK_S = 60.0
#: A deadlock ends one of its transactions at a time.
_ATTEMPTS = 5

#: Every statement has an index that serves it; a plan made while tables were small must not outlive that.
_SETTINGS = (
    "idle_in_transaction_session_timeout=3000",
    "enable_seqscan=off",
    "enable_bitmapscan=off",
    "enable_hashjoin=off",
    "enable_mergejoin=off",
    "jit=off",
)

#: A dead peer is noticed even by a connection that only listens.
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
        """`log` is given the transitions of each commit."""
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
        # Errors are told to who asked; psycopg's own words would only repeat them, and not in the log's form.
        logging.getLogger("psycopg").addHandler(logging.NullHandler())
        self._pool: AsyncConnectionPool[StoreConnection] = AsyncConnectionPool(
            self._url,
            connection_class=StoreConnection,
            kwargs={"autocommit": True, "prepare_threshold": 0, "cursor_factory": SyncedCursor},
            min_size=1,
            max_size=pool_size,
            timeout=_ACQUIRE_S,
            # The pool does not reconnect by itself with growing pauses, but whenever a caller wants a connection.
            reconnect_timeout=0,
            configure=self._configure,
            open=False,
        )

    async def open(self) -> None:
        """Migrates the database if it is older than this program, and begins."""
        connection = await self.connect()
        try:
            with in_our_words():
                await migrate(connection, known_migrations())
        finally:
            await connection.close()
        await self._pool.open()

    async def close(self) -> None:
        """Ends every connection."""
        await self._pool.close()

    async def _configure(self, connection: StoreConnection) -> None:
        await configure(connection)
        connection.keeps_changes = self._log is not None

    async def connect(self) -> StoreConnection:
        """A connection of its own, for who listens; the caller closes it."""
        with in_our_words():
            connection = await StoreConnection.connect(self._url, autocommit=True, prepare_threshold=0)
        await configure(connection)
        return connection

    async def ask(self, work: Work[T], *, is_repeatable: bool = True) -> T:
        """What `work` makes of a connection on which each statement is a transaction of its own."""
        return await self._run(work, is_repeatable=is_repeatable)

    async def transact(self, work: Work[T], *, is_repeatable: bool = True) -> T:
        """What `work` makes of one transaction, committed.

        It is begun anew after a deadlock and, if it is repeatable, after a lost connection, so `work` changes nothing
        but the database.
        """

        async def within(connection: StoreConnection) -> T:
            async with connection.pipeline(), connection.transaction():
                return await work(connection)

        return await self._run(within, is_repeatable=is_repeatable)

    async def now_ms(self) -> int:
        """The database's clock, for checks that a moment more or less does not matter to."""
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
                # One more time, over new connections: those of before a restart all look alive.
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
    """The connection broke: whether anything was done is unknown."""

    def __init__(self, cause: psycopg.Error) -> None:
        super().__init__(str(cause))
        self.cause = cause


async def _read_clock(connection: StoreConnection) -> int:
    row = await (await connection.execute(b"SELECT holdfast.now_ms()")).fetchone()
    assert row is not None
    return int(row[0])


async def configure(connection: StoreConnection) -> None:
    """Every integer is a bigint, so that a statement is prepared once and not for each width of its numbers.

    Arrays that are packed are sent as they are.
    """
    connection.adapters.register_dumper(int, Int8Dumper)
    connection.adapters.register_dumper(int, Int8BinaryDumper)
    connection.adapters.register_dumper(Packed, PackedDumper)


def cut_off(connection: StoreConnection) -> None:
    """Fails the caller that waits for this connection; a cancel would wait for the server again."""
    try:
        handle = socket.socket(fileno=os.dup(connection.pgconn.socket))
    except (psycopg.Error, OSError):  # it is gone already
        return
    with handle:
        handle.shutdown(socket.SHUT_RDWR)
