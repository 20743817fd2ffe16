"""The durable shell of one owner: decide, reserve, append, apply, answer when synced.

Everything runs on one event loop's thread, except for the writing and syncing itself. While a frame is synced, calls
go on being decided, and what they decide goes into the next frame: one sync answers many callers.

Invariants:
- No answer leaves, not even a refusal or what was only read, before everything that it was based on is durable.
- Room is reserved before an event is applied: without room it is refused, and nothing has changed.
- The first failed write or sync is the last: `fatal` is told, which in a process ends it at once, and nobody is
  answered but with UNAVAILABLE, because what is durable is unknown.
- The time that is given to decisions never goes back, not even over a restart.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from holdfast.core.commands import Refusal
from holdfast.errors import Code
from holdfast.journal.disk import Disk
from holdfast.journal.file import FileJournal
from holdfast.journal.memory import MemoryJournal
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.port import JournalConfig
from holdfast.ledger.asyncio_shell import SyncingThread
from holdfast.ledger.clock_log import log_doubts
from holdfast.ledger.log_clock import LogClock, leave_marks, read_mark
from holdfast.ledger.ports import Clock, SyncThread
from holdfast.observe.logs import get_logger
from holdfast.process.private_paths import prepare_directory
from holdfast.topologies.microservices.services.owner_journal import (
    EVENT_BYTES,
    FRAME_BYTES,
    Machine,
    RecoveredOwner,
    join,
)
from holdfast.topologies.microservices.services.owner_snapshots import Compactor, ReplayMaker, SnapshotMaker

T = TypeVar("T")
Fatal = Callable[[BaseException], None]

STOPPING = Refusal(Code.UNAVAILABLE, "STOPPING", "the service is stopping; try again later")
OVERLOADED = Refusal(Code.RESOURCE_EXHAUSTED, "OVERLOADED", "too much waits for the disk; try again later")
NO_SPACE = Refusal(
    Code.RESOURCE_EXHAUSTED, "NO_SPACE", "no disk space is left for the journal; try again when there is"
)
FAILED = Refusal(Code.UNAVAILABLE, "JOURNAL_FAILED", "the journal failed; whether the request took effect is not known")

#: What may pile up behind a slow sync.
OPEN_FRAME_BYTES_MAX = 64 << 20
#: How much a journal grows until a snapshot is made.
COMPACT_BYTES = 64 << 20
#: Below so many callers, a frame smaller than this is synced without handing it to another thread.
_LONE_CALLERS = 1.5
_LONE_FRAME_BYTES = 65_536


class OwnerDecision(msgspec.Struct, frozen=True):
    """What was decided: what is to happen, if anything, and the answer.

    An event that can wait leaves `spare` bytes of the disk for what cannot. `told` is called once the event is durable,
    even if whoever asked for it no longer waits.
    """

    event: Any | None
    reply: Any = None
    spare: int = 0
    told: Callable[[], None] | None = None


Decide = Callable[[int], OwnerDecision | Refusal]


class OwnerWorld(msgspec.Struct, frozen=True):
    """What a keeper needs around it; `sync` writes the journal, `aside` the snapshots."""

    clock: Clock
    loop: asyncio.AbstractEventLoop
    sync: SyncThread
    aside: SyncThread
    fatal: Fatal


class Keeper:
    """The single writer of one machine. Made by `open`; every method belongs to the loop's thread."""

    def __init__(
        self,
        machine: Machine,
        journal: FileJournal | MemoryJournal,
        compactor: Compactor | None,
        world: OwnerWorld,
        log_clock: LogClock,
    ) -> None:
        self.machine = machine
        self._journal = journal
        self._compactor = compactor
        self._world = world
        self._log_clock = log_clock
        log_doubts(log_clock)
        self._position = self._synced = journal.end_position
        self._frame: list[bytes] = []
        self._frame_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None], Callable[[], None] | None]] = deque()
        #: How many callers wait at a time, smoothed over a few frames.
        self._crowd = 0.0
        self._is_syncing = self._is_flush_due = self._is_compacting = False
        self._state = "serving"
        self._idle: asyncio.Event | None = None

    @classmethod
    def open(  # noqa: PLR0913 - each of them is the caller's to say
        cls,
        machine: Machine,
        data: Path | None,
        *,
        digest_version: int,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        fatal: Fatal,
        compact_bytes: int = COMPACT_BYTES,
        maker: SnapshotMaker | None = None,
    ) -> Self:
        """Recovers what the directory holds (None: in memory); errors say what to do, and change nothing.

        Without a `maker`, snapshots are made on a thread of this process.
        """
        if data is None:
            nowhere = _Here()
            world = OwnerWorld(clock, loop, nowhere, nowhere, fatal)
            journal = MemoryJournal(cluster_id=secrets.token_bytes(16), keeps_frames=False)
            return cls(machine, journal, None, world, LogClock(clock, 0))
        prepare_directory(data)
        disk = OsDisk(data)
        return cls.on_disk(
            machine,
            disk,
            digest_version=digest_version,
            world=lambda: OwnerWorld(clock, loop, SyncingThread(loop), SyncingThread(loop), fatal),
            now_ms=clock.wall_ms(),
            compact_bytes=compact_bytes,
            maker=maker,
        )

    @classmethod
    def on_disk(
        cls,
        machine: Machine,
        disk: Disk,
        *,
        digest_version: int,
        world: Callable[[], OwnerWorld],
        now_ms: int,
        compact_bytes: int = COMPACT_BYTES,
        maker: SnapshotMaker | None = None,
    ) -> Self:
        """The same over any disk; `world` is asked for once the state has been recovered."""
        config = JournalConfig(segment_bytes=compact_bytes, digest_version=digest_version)
        recovered = RecoveredOwner.of(machine, disk, config, now_ms=now_ms, new_cluster_id=secrets.token_bytes(16))
        for warning in recovered.warnings:
            get_logger().warning("recovery", message=warning)
        maker = maker or ReplayMaker(machine, disk)
        compactor = Compactor(recovered.journal, disk, maker, compact_bytes)
        around = world()
        log_clock = LogClock(around.clock, recovered.last_ms, previous=read_mark(disk))
        leave_marks(disk, log_clock)
        return cls(machine, recovered.journal, compactor, around, log_clock)

    @property
    def position(self) -> int:
        """How many events were applied, durable or not."""
        return self._position

    # -- requests

    async def act(self, decide: Decide) -> Any:  # noqa: ANN401 - the reply is the caller's own
        """Decides at once, applies at once, and returns the reply when it is durable; a refusal is raised likewise."""
        self._refuse_unless_serving()
        verdict = decide(self.now_ms())
        if isinstance(verdict, Refusal):
            await self._durable()
            raise verdict.error()
        if verdict.event is None:
            await self._durable()
        else:
            self._record(verdict.event, verdict.spare)
            await self._durable(verdict.told)
        return verdict.reply

    async def read(self, query: Callable[[int], T]) -> T:
        """The query's answer, once everything that it saw is durable."""
        self._refuse_unless_serving()
        answer = query(self.now_ms())
        await self._durable()
        return answer

    async def close(self) -> None:
        """Refuses what comes, makes durable what was decided, and closes the journal."""
        if self._state == "closed":
            return
        if self._state == "serving":
            self._state = "stopping"
        self._idle = asyncio.Event()
        if self._compactor is not None:
            self._compactor.stop()
        self._flush()
        self._note_idle()
        await self._idle.wait()
        self._state = "closed"
        for thread in (self._world.sync, self._world.aside):
            if isinstance(thread, SyncingThread):
                thread.close()
        self._journal.close()

    def _refuse_unless_serving(self) -> None:
        if self._state != "serving":
            raise (FAILED if self._state == "failed" else STOPPING).error()

    def now_ms(self) -> int:
        """The log time of a decision made now."""
        return self._log_clock.now_ms()

    def _record(self, event: object, spare: int) -> None:
        data = self.machine.encode(event)
        size = EVENT_BYTES + len(data) + (0 if self._frame else FRAME_BYTES)
        if self._frame_bytes + size > OPEN_FRAME_BYTES_MAX:
            raise OVERLOADED.error()
        try:
            is_room = self._journal.reserve(size, spare=spare)
        except BaseException as error:
            # The journal has failed, perhaps while something else used it: nothing more can become durable.
            self._fail(error)
            raise
        if not is_room:
            raise NO_SPACE.error()
        try:
            self.machine.apply(event)
        except BaseException as error:
            # The state may hold what no frame will: nothing may be built upon it.
            self._fail(error)
            raise
        self._position += 1
        self._frame.append(data)
        self._frame_bytes += size

    # -- durability

    async def _durable(self, told: Callable[[], None] | None = None) -> None:
        """Returns when everything that was applied so far is durable; calls `told` before that."""
        position = self._position
        if position > self._synced:
            synced = self._world.loop.create_future()
            self._waiting.append((position, synced, told))
            if not self._is_flush_due:
                self._is_flush_due = True
                self._world.loop.call_soon(self._flush)
            await synced
        assert position <= self._journal.end_position, "a reply must not leave before what it is based on is durable"

    def _flush(self) -> None:
        self._is_flush_due = False
        if not self._frame or self._is_syncing or self._state in ("failed", "closed"):
            return
        self._is_syncing = True
        body, count, digest = join(self._log_clock.log_ms, self._frame), len(self._frame), self.machine.digest
        is_lone = self._crowd < _LONE_CALLERS and self._frame_bytes < _LONE_FRAME_BYTES
        self._frame, self._frame_bytes = [], 0
        now_ms = self._log_clock.log_ms
        self._world.sync.run(
            lambda: self._journal.write(body, count, digest, now_ms),
            self._on_synced,
            is_lone=is_lone,
        )

    def _on_synced(self, result: int | BaseException) -> None:
        if isinstance(result, BaseException):
            self._fail(result)
            return
        self._is_syncing = False
        self._synced = result
        self._crowd += (len(self._waiting) - self._crowd) / 4
        if self._compactor is not None and self._state == "serving" and self._compactor.is_due():
            self._compact(self._compactor)
        while self._waiting and self._waiting[0][0] <= result:
            _, synced, told = self._waiting.popleft()
            if told is not None:
                self._world.loop.call_soon(told)
            _settle(synced, None)
        self._flush()
        self._note_idle()

    def _compact(self, compactor: Compactor) -> None:
        """Has a snapshot made beside what goes on."""
        compactor.begin()
        self._is_compacting = True
        self._world.aside.run(compactor.compact, self._on_compacted, is_lone=False)

    def _on_compacted(self, result: int | BaseException) -> None:
        self._is_compacting = False
        if isinstance(result, BaseException):
            self._fail(result)
        elif self._compactor is not None:
            self._compactor.ended(result)
        self._note_idle()

    def _note_idle(self) -> None:
        is_busy = self._frame or self._is_syncing or self._is_compacting
        if self._idle is not None and (self._state == "failed" or not is_busy):
            self._idle.set()

    def _fail(self, error: BaseException) -> None:
        if self._state != "failed":
            self._state = "failed"
            self._world.fatal(error)
        while self._waiting:
            _settle(self._waiting.popleft()[1], FAILED.error())
        self._note_idle()


def _settle(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():  # whoever waited has left
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


class _Here:
    """Does the work at once, for a journal in memory."""

    def run(self, work: Callable[[], int], done: Callable[[int | BaseException], None], *, is_lone: bool) -> None:
        """Does it and tells what came of it."""
        done(work())
