"""One shard on one node: followed, or served by a coordinator of its own while this node leads it.

Invariants:
- At most one of follower and coordinator has the state of the shard; every leadership begins with what was followed.
- A coordinator serves one epoch. When that is over, its connections are dropped, its state is dropped with it, and the
  shard is followed from its newest snapshot again.
- Steps that wait run one after another, in the order of the member's calls.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Protocol

import msgspec
from msgspec.structs import replace

from holdfast.core.condition import Condition
from holdfast.core.ledger import LedgerConfig
from holdfast.core.owner import Ownership
from holdfast.errors import HoldfastError
from holdfast.journal.errors import LeadershipLostError
from holdfast.journal.port import JournalConfig
from holdfast.ledger.asyncio_shell import AsyncioScheduler, SyncingThread
from holdfast.ledger.coordinator import Coordinator
from holdfast.ledger.service import LedgerCore
from holdfast.ledger.snapshot_keeper import stored_in
from holdfast.ledger.snapshot_policy import StoredSnapshots
from holdfast.observe.logs import get_logger
from holdfast.process.memory import memory_for_jobs
from holdfast.server.wire.connection import WireService
from holdfast.settings import Settings
from holdfast.topologies.cluster.database.archive import PostgresArchive
from holdfast.topologies.cluster.database.cluster_database import ClusterDatabase
from holdfast.topologies.cluster.event_versions import EventGate
from holdfast.topologies.cluster.followed_ledger import FollowedLedger
from holdfast.topologies.cluster.follower import FollowerState, ShardFollower, TakenOver
from holdfast.topologies.cluster.journal import ShardStorage
from holdfast.topologies.cluster.lease_deadline import LeaseDeadline
from holdfast.topologies.cluster.store import ClusterStore, Housekeeping, ShardLeadership

#: How long calls in progress may take when a shard is handed over: clients try them again at the successor.
_HANDOVER_S = 0.2


class HostUser(Protocol):
    """The node, as its shards use it."""

    def wire_service(self, core: LedgerCore) -> WireService:
        """Returns the service for connections to a shard that this node leads."""
        ...

    def observe(self, shard: int, coordinator: Coordinator) -> None:
        """Installs the observers of a coordinator before it starts."""
        ...

    def housekeeping(self, shard: int, coordinator: Coordinator) -> Housekeeping:
        """Begins to make the snapshots of a shard."""
        ...

    def give_up(self, shard: int, why: str) -> None:
        """Ends the leadership of a shard that cannot be served here."""
        ...

    def served(self, shard: int) -> None:
        """Called when this node serves a shard, or does not any more."""
        ...


class _Leading(msgspec.Struct):
    """One leadership."""

    epoch: int
    lease: LeaseDeadline
    events: EventGate
    #: The position at which it began.
    position: int = 0
    core: LedgerCore | None = None
    service: WireService | None = None
    #: Set when its journal has failed.
    failed: asyncio.Event = msgspec.field(default_factory=asyncio.Event)


class ShardHost:
    """One shard. Every method is called on the node's event loop."""

    def __init__(self, shard: int, settings: Settings, database: ClusterDatabase, user: HostUser) -> None:
        self.shard = shard
        #: The memory of the machine or container may change; a follower and its coordinator have the same limit.
        self._settings = settings = replace(settings, memory_bytes=memory_for_jobs(settings))
        self._database = database
        self._user = user
        self._loop = asyncio.get_running_loop()
        self._ledger_config = LedgerConfig(settings.aging_ms, settings.dedup_keys_max, memory_for_jobs(settings))
        self._follower: ShardFollower | None = None
        self._thread: SyncingThread | None = None
        #: Its connections: for frames and for snapshots.
        self._followed: tuple[FollowedLedger, PostgresArchive] | None = None
        self._leading: _Leading | None = None
        #: The last step that waits; each step waits for the one before it.
        self._step: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def service(self) -> WireService | None:
        """The service of the shard while this node serves it."""
        return self._leading.service if self._leading is not None else None

    @property
    def core(self) -> LedgerCore | None:
        """The ledger of the shard while this node serves it."""
        leading = self._leading
        return leading.core if leading is not None and leading.service is not None else None

    @property
    def position(self) -> int:
        """The last position that this node has applied."""
        core, leading = self.core, self._leading
        if core is not None:
            return core.journal.end_position
        if self._follower is not None:
            return self._follower.position
        return leading.position if leading is not None else 0

    @property
    def can_lead(self) -> bool:
        """Whether this node serves the shard, or could continue from the state that it follows."""
        return self.core is not None or self._is_ready

    @property
    def _is_ready(self) -> bool:
        """Whether the follower's state can be taken over now: no step that would end the follower is waiting."""
        is_between = self._leading is not None or not (self._step is None or self._step.done())
        return not is_between and self._follower is not None and self._follower.can_lead

    def allow(self, events: frozenset[str]) -> None:
        """Sets the events that all nodes know."""
        if self._leading is not None:
            self._leading.events.writable = events

    def conditions(self) -> list[Condition]:
        """Returns the problems of this shard that an operator should check."""
        found = [] if self._follower is None else list(self._follower.conditions())
        core = self.core
        return [*found, *(core.conditions() if core is not None else ())]

    # -- following

    def follow(self) -> None:
        """Begins to follow the shard."""
        if self._is_closed:
            return
        self._thread = SyncingThread(self._loop, name=f"holdfast-shard-{self.shard}")
        archive = self._database.archive(self.shard)
        ledger = FollowedLedger(self.shard, self._database.reader(self.shard), archive, self._ledger_config)
        self._followed = (ledger, archive)
        self._follower = ShardFollower(self.shard, AsyncioScheduler(self._loop), self._thread, ledger)
        self._follower.start()

    def wake(self) -> None:
        """Reads now: a new frame was signalled."""
        if self._follower is not None:
            self._follower.wake()

    # -- leading

    def lead(self, epoch: int, lease: LeaseDeadline) -> None:
        """Takes the state of the follower over, and serves it; gives the lead up if that state is not there yet."""
        follower = self._follower
        if follower is None or not self._is_ready:
            self._user.give_up(self.shard, "its state is being read again")
            return
        leading = self._leading = _Leading(epoch, lease, EventGate())
        follower.take_over(lambda taken: self._on_taken(leading, taken))

    def _on_taken(self, leading: _Leading, taken: TakenOver | None) -> None:
        if self._leading is not leading:
            return
        if taken is None:
            self._user.give_up(self.shard, "its state here contradicts the frames in the database")
            return
        self._then(lambda: self._open(leading, taken))

    async def _open(self, leading: _Leading, taken: TakenOver) -> None:
        leading.position = taken.position
        await self._stop_following()
        if self._leading is not leading:
            return
        core = leading.core = self._core(leading, taken)
        try:
            await asyncio.to_thread(core.open)
            if self._leading is leading:  # otherwise the next step ends this leadership
                self._serve(leading, core)
        except HoldfastError as error:
            self._user.give_up(self.shard, error.message)
        except Exception:
            self._user.give_up(self.shard, "its coordinator could not be started")
            raise

    def _serve(self, leading: _Leading, core: LedgerCore) -> None:
        coordinator = core.prepare()
        self._user.observe(self.shard, coordinator)
        core.start(is_shared=True)
        leading.service = self._user.wire_service(core)
        get_logger().info("shard_led", shard=self.shard, epoch=leading.epoch, jobs=len(core.ledger.state.jobs))
        self._user.served(self.shard)

    def _core(self, leading: _Leading, taken: TakenOver) -> LedgerCore:
        database, shard = self._database, self.shard
        leadership = ShardLeadership(shard, database.cluster_id, leading.epoch, leading.lease, leading.events)
        storage = ShardStorage(database.writer(shard), database.writer(shard), lambda: database.reader(shard))
        store = ClusterStore(
            leadership,
            taken,
            storage,
            lambda wait_ms: time.sleep(wait_ms / 1_000),
            JournalConfig(segment_bytes=self._settings.segment_bytes),
            lambda coordinator: self._user.housekeeping(shard, coordinator),
            self._list_snapshots,
        )
        ownership = Ownership(index=shard, nodes=database.shards)
        return LedgerCore(
            self._settings, lambda error: self._on_fatal(leading, error), ownership=ownership, store=store
        )

    def _list_snapshots(self) -> StoredSnapshots:
        """Lists the snapshots of the shard; blocks."""
        with closing(self._database.archive(self.shard)) as archive:
            return stored_in(archive)

    def _on_fatal(self, leading: _Leading, error: BaseException) -> None:
        """Ends a leadership whose journal has failed: nothing more can become durable under it."""
        leading.failed.set()
        if self._leading is leading:
            get_logger().warning("shard_failed", shard=self.shard, epoch=leading.epoch, message=str(error))
            self._user.give_up(self.shard, str(error))

    # -- the end of a leadership

    def hand_over(self, done: Callable[[], None]) -> None:
        """Stops the coordinator cleanly and calls `done`, then follows again."""
        self._then(lambda: self._hand_over(done))

    async def _hand_over(self, done: Callable[[], None]) -> None:
        leading, self._leading = self._leading, None
        try:
            await self._end(leading, grace_s=_HANDOVER_S, is_clean=True)
        finally:
            done()

    def lose(self) -> None:
        """Drops the coordinator and its connections, then follows again; harmless after a handover."""
        leading, self._leading = self._leading, None
        if leading is not None:
            self._then(lambda: self._end(leading, grace_s=0, is_clean=False))

    async def _end(self, leading: _Leading | None, *, grace_s: float, is_clean: bool) -> None:
        """Ends a leadership at any stage, with the follower whose state it may have been about to take over."""
        if self._follower is not None and self._follower.state is not FollowerState.DIVERGED:
            await self._stop_following()
        if leading is None or leading.core is None:
            return
        core, service = leading.core, leading.service
        if service is None:
            await core.abandon()
            return
        self._user.served(self.shard)
        if not is_clean:
            core.coordinator.commit.fail(LeadershipLostError("this node does not lead the shard any more"))
        core.dismiss()
        await asyncio.gather(_closed(core, leading.failed), service.stop(grace_s))

    # -- the end

    async def close(self) -> None:
        """Ends everything; a leadership that is still there is dropped."""
        self._is_closed = True
        self.lose()
        if self._step is not None:
            await asyncio.wait([self._step])
        await self._stop_following()

    async def _stop_following(self) -> None:
        follower, thread, self._follower, self._thread = self._follower, self._thread, None, None
        if follower is not None:
            follower.close()
        if thread is not None:
            await asyncio.to_thread(thread.close)
        for one in self._followed or ():
            one.close()  # a close that the follower has queued behind a read does not run any more
        self._followed = None

    def _follow_unless_leading(self) -> None:
        if self._leading is None and self._follower is None:
            self.follow()

    def _then(self, step: Callable[[], Awaitable[None]]) -> None:
        """Runs a step after the one before it; a shard that is not led afterwards is followed."""
        before = self._step

        async def run() -> None:
            if before is not None:
                await asyncio.wait([before])
            try:
                await step()
            finally:
                self._follow_unless_leading()

        self._step = self._loop.create_task(run())
        self._step.add_done_callback(_log_bug)


async def _closed(core: LedgerCore, failed: asyncio.Event) -> None:
    """Closes a ledger after its last frame; one whose journal fails is closed without it."""
    closing, failing = asyncio.ensure_future(core.close()), asyncio.ensure_future(failed.wait())
    await asyncio.wait([closing, failing], return_when=asyncio.FIRST_COMPLETED)
    failing.cancel()
    if failed.is_set() and not closing.done():
        closing.cancel()
        await asyncio.wait([closing])
        await core.abandon()
        return
    await closing


def _log_bug(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        get_logger().error("bug", message="a step of a shard failed", exc_info=error)
