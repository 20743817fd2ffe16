"""The durable shell of one owner: decide, reserve, apply, append, answer when synced (see `ledger/group_commit.py`).

Everything runs on one event loop's thread, except for the writing and syncing itself.

Invariants:
- No reply is sent, not even a refusal or the result of a query, before everything that it is based on is durable.
- After a failed write or sync `fatal` is called, which ends a service process at once, and callers get UNAVAILABLE:
  the durable state is unknown.
- The time of decisions never goes back, not even over a restart.
"""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from holdfast import limits
from holdfast.core.commands import Refusal
from holdfast.core.digest import DIGEST_VERSION
from holdfast.errors import Code
from holdfast.journal.descriptors import DescriptorReserve
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.disk import Disk
from holdfast.journal.file import FileJournal
from holdfast.journal.memory import MemoryJournal
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.port import JournalConfig
from holdfast.ledger.asyncio_shell import AsyncioScheduler, SyncingThread
from holdfast.ledger.clock_log import log_doubts
from holdfast.ledger.group_commit import NO_SPACE, CommitConfig, Done, GroupCommit
from holdfast.ledger.log_clock import LogClock, leave_marks, read_mark
from holdfast.ledger.ports import Clock, SyncThread
from holdfast.ledger.recovery import Progress, ignore_progress
from holdfast.ledger.snapshot_keeper import Builder, SnapshotHealth, SnapshotKeeper
from holdfast.ledger.snapshot_policy import KeeperConfig
from holdfast.observe.logs import get_logger
from holdfast.process.helper_process import HelperProcess
from holdfast.process.private_paths import prepare_directory
from holdfast.topologies.microservices.services.owner_journal import (
    EVENT_BYTES,
    FRAME_BYTES,
    RecoveredOwner,
    StateMachine,
    join,
)
from holdfast.topologies.microservices.services.owner_snapshots import ReplayBuilder

T = TypeVar("T")
Fatal = Callable[[BaseException], None]

STOPPING = Refusal(Code.UNAVAILABLE, "STOPPING", "the service is stopping; try again later")
OVERLOADED = Refusal(Code.RESOURCE_EXHAUSTED, "OVERLOADED", "too many changes wait for the disk; try again later")
FAILED = Refusal(Code.UNAVAILABLE, "JOURNAL_FAILED", "the journal failed; it is unknown if the request took effect")

#: Maximum size of the events that wait for a slow sync.
OPEN_FRAME_BYTES_MAX = 64 << 20
#: Owners keep no history. A snapshot has the whole state, so it is made after an amount of events in proportion.
SNAPSHOTS = KeeperConfig(snapshot_bytes=limits.OWNER_SNAPSHOT_BYTES_DEFAULT, least_growth=1.0, history_bytes=0)


class OwnerDecision(msgspec.Struct, frozen=True):
    """A decision: the event to apply, if any, and the reply.

    An event that may be refused leaves `spare` bytes of the disk for others. `told` is called once the event is
    durable, even if the caller no longer waits.
    """

    event: Any | None
    reply: Any = None
    spare: int = 0
    told: Callable[[], None] | None = None


Decide = Callable[[int], OwnerDecision | Refusal]


class OwnerPorts(msgspec.Struct, frozen=True):
    """The environment of a keeper; `sync` writes the journal, `aside` deletes files."""

    clock: Clock
    loop: asyncio.AbstractEventLoop
    sync: SyncThread
    aside: SyncThread
    fatal: Fatal


class OwnerRecovery(msgspec.Struct, frozen=True):
    """The recovered state of a directory. It needs no event loop, so a thread can make it."""

    disk: Disk
    recovered: RecoveredOwner
    #: For helper processes; None on disks that other processes cannot read.
    descriptors: DescriptorReserve | None = None

    @classmethod
    def of(
        cls,
        machine: StateMachine,
        data: Path,
        *,
        now_ms: int,
        snapshots: KeeperConfig = SNAPSHOTS,
        progress: Progress = ignore_progress,
        open_disk: Callable[[Path], Disk] = OsDisk,
    ) -> Self:
        """Recovers the state of the directory into the machine; errors say what to do, and change nothing."""
        prepare_directory(data)
        disk = open_disk(data)
        return cls.on_disk(machine, disk, now_ms=now_ms, snapshots=snapshots, progress=progress)

    @classmethod
    def on_disk(
        cls,
        machine: StateMachine,
        disk: Disk,
        *,
        now_ms: int,
        snapshots: KeeperConfig = SNAPSHOTS,
        progress: Progress = ignore_progress,
    ) -> Self:
        """Does the same on any disk."""
        config = _journal_config(snapshots.snapshot_bytes)
        recovered = RecoveredOwner.of(
            machine, disk, config, now_ms=now_ms, new_cluster_id=secrets.token_bytes(16), progress=progress
        )
        return cls(disk, recovered, getattr(disk, "descriptors", None))


class StateOwner:
    """The single writer of one machine. Created by `open`; every method runs on the loop's thread."""

    def __init__(
        self,
        machine: StateMachine,
        journal: FileJournal | MemoryJournal,
        ports: OwnerPorts,
        log_clock: LogClock,
        helper: HelperProcess | None = None,
    ) -> None:
        self.machine = machine
        self._journal = journal
        self._ports = ports
        self._log_clock = log_clock
        log_doubts(log_clock)
        self.commit = GroupCommit(journal, ports.sync, AsyncioScheduler(ports.loop), self, CommitConfig())
        #: Owners decide every command at once, so none is queued.
        self.queued = 0
        self._is_flush_due = False
        self._helper = helper
        #: Counts of made and failed snapshots; in memory none is made.
        self.snapshots = SnapshotHealth()
        self._state = "serving"
        self._idle: asyncio.Event | None = None

    @classmethod
    def open(
        cls,
        machine: StateMachine,
        data: Path | None,
        *,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        fatal: Fatal,
        snapshots: KeeperConfig = SNAPSHOTS,
        command: list[str] | None = None,
    ) -> Self:
        """Recovers the state of the directory (None: in memory); errors say what to do, and change nothing.

        `command` makes a snapshot in a helper process; without it, a thread of this process makes snapshots.
        """
        recovery = (
            None if data is None else OwnerRecovery.of(machine, data, now_ms=clock.wall_ms(), snapshots=snapshots)
        )
        return cls.over(machine, recovery, clock=clock, loop=loop, fatal=fatal, snapshots=snapshots, command=command)

    @classmethod
    def over(
        cls,
        machine: StateMachine,
        recovery: "OwnerRecovery | None",
        *,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        fatal: Fatal,
        snapshots: KeeperConfig = SNAPSHOTS,
        command: list[str] | None = None,
    ) -> Self:
        """Serves the recovered state (None: in memory). As `open`, whose first part may run on another thread."""
        if recovery is None:
            nowhere = _InlineThread()
            ports = OwnerPorts(clock, loop, nowhere, nowhere, fatal)
            journal = MemoryJournal(cluster_id=secrets.token_bytes(16), keeps_frames=False)
            return cls(machine, journal, ports, LogClock(clock, 0))
        helper = (
            HelperProcess(loop, lambda: command, recovery.descriptors) if command and recovery.descriptors else None
        )
        ports = OwnerPorts(clock, loop, SyncingThread(loop), SyncingThread(loop), fatal)
        return cls._serving(machine, recovery, ports, snapshots, helper)

    @classmethod
    def on_disk(
        cls,
        machine: StateMachine,
        disk: Disk,
        *,
        ports: Callable[[], OwnerPorts],
        now_ms: int,
        snapshots: KeeperConfig = SNAPSHOTS,
        maker: Builder | None = None,
    ) -> Self:
        """Does the same on any disk; `ports` is called once the state has been recovered."""
        recovery = OwnerRecovery.on_disk(machine, disk, now_ms=now_ms, snapshots=snapshots)
        return cls._serving(machine, recovery, ports(), snapshots, maker)

    @classmethod
    def _serving(
        cls,
        machine: StateMachine,
        recovery: "OwnerRecovery",
        around: OwnerPorts,
        snapshots: KeeperConfig,
        maker: Builder | None,
    ) -> Self:
        disk, recovered = recovery.disk, recovery.recovered
        for warning in recovered.warnings:
            get_logger().warning("recovery", message=warning)
        log_clock = LogClock(around.clock, recovered.last_ms, previous=read_mark(disk))
        leave_marks(disk, log_clock)
        helper = maker if isinstance(maker, HelperProcess) else None
        state_owner = cls(machine, recovered.journal, around, log_clock, helper)
        archive = DirectoryArchive(disk)
        maker = maker or ReplayBuilder(machine, archive, around.aside, state_owner.commit.fail)
        keeper = SnapshotKeeper(state_owner.commit, recovered.journal, archive, maker, around.aside, snapshots)
        state_owner.snapshots = keeper.health
        return state_owner

    @property
    def position(self) -> int:
        """The number of events that were applied, durable or not."""
        return self.commit.position

    # -- requests

    async def act(self, decide: Decide) -> Any:  # noqa: ANN401 - the reply is the caller's own
        """Decides and applies at once, and returns the reply when it is durable; a refusal is raised then, too."""
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
        """Returns the result of the query once all state that it read is durable."""
        self._refuse_unless_serving()
        answer = query(self.now_ms())
        await self._durable()
        return answer

    async def close(self) -> None:
        """Refuses new calls, makes decided events durable, and closes the journal."""
        if self._state == "closed":
            return
        if self._state == "serving":
            self._state = "stopping"
        self._idle = asyncio.Event()
        if self._helper is not None:
            self._helper.stop()
        self.commit.flush()
        self._note_idle()
        await self._idle.wait()
        self._state = "closed"
        for thread in (self._ports.sync, self._ports.aside):
            if isinstance(thread, SyncingThread):
                thread.close()
        self._journal.close()
        if self._helper is not None:
            await self._helper.ended()

    @property
    def is_serving(self) -> bool:
        """Whether calls are accepted."""
        return self._state == "serving"

    @property
    def log_ms(self) -> int:
        """The log time of the last decision."""
        return self._log_clock.log_ms

    @property
    def served_ms(self) -> int:
        """A time that only goes forward."""
        return self._ports.clock.steady_ms()

    def _refuse_unless_serving(self) -> None:
        if not self.is_serving:
            raise (FAILED if self._state == "failed" else STOPPING).error()

    def now_ms(self) -> int:
        """The log time of a decision made now."""
        return self._log_clock.now_ms()

    def _record(self, event: object, spare: int) -> None:
        data = self.machine.encode(event)
        commit = self.commit
        size = EVENT_BYTES + len(data) + (0 if commit.frame_bytes else FRAME_BYTES)
        if commit.frame_bytes + size > OPEN_FRAME_BYTES_MAX:
            raise OVERLOADED.error()
        if not commit.make_room(size, spare=spare):
            raise NO_SPACE.error()
        try:
            self.machine.apply(event)
        except BaseException as error:
            # The state may contain changes that no frame will have, so it must not be used any more.
            commit.fail(error)
            raise
        commit.append(data, size)

    # -- durability

    async def _durable(self, told: Callable[[], None] | None = None) -> None:
        """Returns when everything that was applied so far is durable; calls `told` before that."""
        if self.commit.position == self.commit.synced:
            return
        synced = self._ports.loop.create_future()

        def done(failure: object) -> None:
            if told is not None and failure is None:
                self._ports.loop.call_soon(told)
            if synced.done():  # the caller no longer waits
                return
            if isinstance(failure, Refusal):
                synced.set_exception(failure.error())
            else:
                synced.set_result(None)

        self.commit.answer(done, None)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._ports.loop.call_soon(self._flush)
        await synced

    def _flush(self) -> None:
        self._is_flush_due = False
        self.commit.flush()

    def sealed(self, events: list[bytes]) -> tuple[bytes, int]:
        """Returns the body of a frame, and the digest of the state."""
        return join(self.log_ms, events), self.machine.digest

    def on_durable(self, position: int) -> None:
        """Does nothing before the replies."""

    def on_replied(self) -> None:
        """Writes the events that came during the sync."""
        self.commit.flush()
        self._note_idle()

    def on_failed(self, error: BaseException, unanswered: list[Done]) -> None:
        """Calls `fatal`, and refuses every waiting caller."""
        self._state = "failed"
        self._ports.fatal(error)
        for done in unanswered:
            done(FAILED)
        self._note_idle()

    def _note_idle(self) -> None:
        if self._idle is not None and (self._state == "failed" or self.commit.is_idle):
            self._idle.set()


def _journal_config(segment_bytes: int) -> JournalConfig:
    """Returns the configuration; reserves at most the size of one segment in advance."""
    config = JournalConfig(segment_bytes=segment_bytes, digest_version=DIGEST_VERSION)
    return replace(config, extent_bytes=min(config.extent_bytes, segment_bytes))


class _InlineThread:
    """Runs work at once, for a journal in memory."""

    def run(self, work: Callable[[], int], done: Callable[[int | BaseException], None], *, is_lone: bool) -> None:
        """Runs the work, and calls `done` with its result."""
        done(work())
