"""Signals about commits of other processes, from LISTEN on a connection of its own.

A signal saves waiting, and no more: signals are lost while the connection is being opened again, so every opening is
followed by POLL, and the receiver also polls now and then.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from enum import StrEnum

import msgspec
import psycopg

from holdfast.observe.logs import get_logger
from holdfast.postgres.statements import statements
from holdfast.topologies.cluster.database.address import DatabaseAddress
from holdfast.topologies.cluster.database.failures import meaning_of
from holdfast.topologies.cluster.ports import DatabaseLostError, DatabaseRefusedError

_SQL = statements(__package__, "signals")

_CHANNEL_PREFIX = "holdfast_"
#: The first pause before another connection, and the longest.
_PAUSE_S, _PAUSE_S_MAX = 0.1, 5.0
#: A connection without a notification is checked after this time.
_QUIET_S = 15.0


class SignalKind(StrEnum):
    """The kinds of changes; the channels are named after them."""

    #: Anything: signals may have been lost.
    POLL = "poll"
    FRAMES = "frames"
    INBOX = "inbox"
    LEADERS = "leaders"


class CommitSignal(msgspec.Struct, frozen=True):
    """A change of a shard; -1 for all shards."""

    kind: SignalKind
    shard: int = -1


_CHANNELS = {_CHANNEL_PREFIX + kind: kind for kind in SignalKind if kind is not SignalKind.POLL}


class CommitSignals:
    """Receives signals on an event loop and passes them on, until it is canceled."""

    def __init__(self, address: DatabaseAddress, heard: Callable[[CommitSignal], None]) -> None:
        self._address = address
        self._heard = heard

    async def run(self) -> None:
        """Listens until the task is canceled; opens the connection again with growing pauses."""
        failures = 0
        while True:
            try:
                async for signal in self._signals():
                    failures = 0
                    self._heard(signal)
            except (DatabaseLostError, DatabaseRefusedError) as error:
                failures += 1
                get_logger().warning("signals_lost", reason=error.reason, message=error.message, failures=failures)
            await asyncio.sleep(min(_PAUSE_S_MAX, _PAUSE_S * 2 ** min(failures, 10)) * random.uniform(0.5, 1))

    async def _signals(self) -> AsyncIterator[CommitSignal]:
        """Yields POLL once the connection listens, then each signal; ends with an error."""
        try:
            async with await _connect(self._address) as connection:
                for channel in _CHANNELS:
                    await connection.execute(f"LISTEN {channel}".encode(), prepare=False)
                yield CommitSignal(SignalKind.POLL)
                while True:
                    async for notice in connection.notifies(timeout=_QUIET_S):
                        yield _signal(notice)
                    async with asyncio.timeout(self._address.limit_ms / 1_000):
                        await connection.execute(_SQL["ping"], prepare=False)
        except psycopg.Error as error:
            raise meaning_of(error) from error
        except TimeoutError as error:
            raise meaning_of(psycopg.errors.ConnectionTimeout("no answer in time")) from error


class FrameAnnouncer:
    """Tells followers that a shard has new frames, in batches.

    A notification inside the append would make the appends of all shards wait for each other: the server commits one
    transaction with notifications at a time.
    """

    #: Followers notice a frame about this much later than the leader.
    batch_s = 0.01

    def __init__(self, address: DatabaseAddress) -> None:
        self._address = address
        self._shards: set[int] = set()
        self._task: asyncio.Task[None] | None = None
        self._connection: psycopg.AsyncConnection | None = None

    def announce(self, shard: int) -> None:
        """Sends a notification soon. It may be lost; followers also poll."""
        self._shards.add(shard)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Sends what waits, and closes the connection."""
        if self._task is not None:
            await self._task
        if self._connection is not None:
            await self._connection.close()

    async def _run(self) -> None:
        while self._shards:
            await asyncio.sleep(self.batch_s)
            shards, self._shards = sorted(self._shards), set()
            try:
                async with asyncio.timeout(self._address.limit_ms / 1_000):
                    if self._connection is None or self._connection.closed:
                        # A lost notification harms nothing, so its commit need not wait for a disk.
                        self._connection = await _connect(self._address, options="-c synchronous_commit=off")
                    await self._connection.execute(_SQL["announce"], {"shards": shards})
            except (psycopg.Error, TimeoutError):
                if self._connection is not None:
                    await self._connection.close()


async def _connect(address: DatabaseAddress, **options: str) -> psycopg.AsyncConnection:
    return await psycopg.AsyncConnection.connect(address.conninfo(**options), autocommit=True)


def _signal(notice: psycopg.Notify) -> CommitSignal:
    """Returns the signal of a notification; POLL for one that this version does not know."""
    kind = _CHANNELS.get(notice.channel)
    return (
        CommitSignal(kind, int(notice.payload))
        if kind and notice.payload.isdecimal()
        else CommitSignal(SignalKind.POLL)
    )
