"""One node of a simulated cluster: a process with a member, followers, and the coordinators of the shards it leads.

The node wires the product's parts as `holdfast node` does. It is killed, paused, cut off and restarted.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from holdfast.clock import Uptime
from holdfast.journal.errors import LeadershipLostError
from holdfast.journal.port import JournalConfig
from holdfast.ledger.coordinator import CoordinatorPorts
from holdfast.ledger.snapshot_policy import KeeperConfig
from holdfast.topologies.cluster.event_versions import KNOWN_EVENTS, EventGate
from holdfast.topologies.cluster.followed_ledger import FollowedLedger
from holdfast.topologies.cluster.follower import FollowerState, ShardFollower, TakenOver
from holdfast.topologies.cluster.journal import ShardStorage
from holdfast.topologies.cluster.leadership import SERVING, writable_events
from holdfast.topologies.cluster.lease_deadline import LeaseDeadline
from holdfast.topologies.cluster.member import ClusterMember, MemberPorts
from holdfast.topologies.cluster.ports import ClusterView, NodeRecord
from holdfast.topologies.cluster.store import ClusterStore, Housekeeping, ShardLeadership
from holdfast_lab.simulation.cluster_server import ClusterServer, ledger_config, open_store
from holdfast_lab.simulation.cluster_settings import ClusterSettings
from holdfast_lab.simulation.cluster_snapshots import SimulatedSnapshots, SnapshotMaker
from holdfast_lab.simulation.database_connections import (
    DatabaseLink,
    LinkFaults,
    SimulatedFrameReader,
    SimulatedFrameWriter,
    SimulatedRegistry,
)
from holdfast_lab.simulation.process import SimulatedProcess
from holdfast_lab.simulation.process_thread import ProcessThread
from holdfast_lab.simulation.scheduler import DUE, Call, ScheduledCall, SimulatedScheduler
from holdfast_lab.simulation.shard_front import ShardFront
from holdfast_lab.simulation.shard_log import ShardLog
from holdfast_lab.simulation.simulated_database import SimulatedDatabase
from holdfast_lab.simulation.swarm import SwarmSettings
from holdfast_lab.simulation.violation import Violation, require

_BOOT_US = (1_000, 150_000)
_LATE_US = (100, 20_000)
_SLOW_TAKEOVERS = 0.3
_INBOX_MS = 40
_HISTORY_SEGMENTS = 4
_PERMILLE = 1_000
#: A node that cannot hand its shards over ends without that.
_DRAIN_LEASES = 6


@dataclass(frozen=True, slots=True)
class ShardParts:
    """One shard: its confirmed log, its snapshots, its servers, and its actors' settings."""

    log: ShardLog
    snapshots: SimulatedSnapshots
    front: ShardFront
    settings: SwarmSettings


@dataclass(frozen=True, slots=True)
class ClusterParts:
    """The parts that all nodes share."""

    clock: SimulatedScheduler
    settings: ClusterSettings
    database: SimulatedDatabase
    shards: dict[int, ShardParts]
    mint: Callable[[], str]


class NodeClock:
    """The clocks of one machine: a steady clock with a rate of its own, and a wall clock with an offset."""

    def __init__(self, clock: SimulatedScheduler, rate_permille: int, offset_ms: int) -> None:
        self._clock = clock
        self.rate_permille = rate_permille
        self.offset_ms = offset_ms

    def steady_ms(self) -> int:
        """Returns the steady time."""
        return self._clock.now_us * (_PERMILLE + self.rate_permille) // (1_000 * _PERMILLE)

    def wall_ms(self) -> int:
        """Returns the wall clock."""
        return self._clock.wall_ms() + self.offset_ms

    def uptime(self) -> Uptime | None:
        """Returns None: the machine does not tell."""
        return None


class NodeProcess(SimulatedProcess):
    """A process whose timers follow the clock of its machine."""

    def __init__(self, clock: SimulatedScheduler, rng: random.Random, node_clock: NodeClock) -> None:
        super().__init__(clock, rng, _no_power_cut, _no_fatal)
        self._node_clock = node_clock
        # Between the loss of a leadership and its notification, the journal refuses everything.
        self.is_failing = True
        #: What the process does when it continues.
        self._deferred: list[tuple[ScheduledCall, str, Call, int]] = []
        #: How much later than arrived messages the timers run that were due while the process was stopped.
        self.late_timers_us = 0

    def _run(self, planned: ScheduledCall, kind: str, call: Call, phase: int) -> None:
        if self.stalled_until_us > self._clock.now_us:
            self._deferred.append((planned, kind, call, phase))
        else:
            super()._run(planned, kind, call, phase)

    def here(self, kind: str, call: Call) -> None:
        """Handles an arrival now, or when the process continues."""
        self.enter(0, kind, call)

    def stall(self, for_us: int) -> None:
        """Stops the process for a while, unless it is woken up before."""
        super().stall(for_us)
        until_us = self.stalled_until_us
        self._clock.after(for_us, "continues", lambda: self.wake() if self.stalled_until_us == until_us else None)

    def wake(self) -> None:
        """Continues: first with what was about to run, then with messages, then with timers."""
        self.stalled_until_us = 0
        deferred, self._deferred = self._deferred, []
        for planned, kind, call, phase in deferred:
            delay_us = self.late_timers_us if phase == DUE else 0
            self._clock.after(delay_us, kind, partial(self._run, planned, kind, call, phase), phase)

    def later(self, delay_ms: int, call: Call) -> ScheduledCall:
        """Runs the call when the machine's steady clock has advanced by the delay, and a little more."""
        delay_us = -(-delay_ms * 1_000 * _PERMILLE // (_PERMILLE + self._node_clock.rate_permille))
        return self.enter(delay_us + self._rng.randint(0, 999), "timer", call, DUE)


class SimulatedNode:
    """One machine of the cluster; it is also the `MemberUser` of its process."""

    def __init__(self, name: str, parts: ClusterParts) -> None:
        self.name = name
        self._parts = parts
        self._rng = random.Random(f"{name}/{parts.settings.seed}")
        rate = parts.settings.clock_rate_permille
        offset_ms = self._rng.choice([0, 0, self._rng.randint(-3_600_000, 3_600_000)])
        self.clock = NodeClock(parts.clock, self._rng.randint(-rate, rate), offset_ms)
        self.faults = LinkFaults(**parts.settings.calls)
        self.process: NodeProcess | None = None
        self.member: ClusterMember
        self.followers: dict[int, ShardFollower] = {}
        self.followed: dict[int, FollowedLedger] = {}
        self.servers: dict[int, ClusterServer] = {}
        self._leading: dict[int, int] = {}
        self._events = EventGate()
        self._threads: list[ProcessThread] = []
        self._links: list[DatabaseLink] = []
        self._lives = 0

    # -- the process

    def boot(self) -> None:
        """Starts the process."""
        if self.process is not None:
            return
        parts, settings = self._parts, self._parts.settings
        self._lives += 1
        self.process = process = NodeProcess(parts.clock, self._rng, self.clock)
        record = NodeRecord(self.name, f"{self.name}-{self._lives}", {}, self._lives, KNOWN_EVENTS, SERVING, {})
        thread = self._thread("registry")
        ports = MemberPorts(self.clock, process, thread, SimulatedRegistry(self._link(thread)))
        self.member = ClusterMember(ports, self, record, settings.lease_ms, self._applied)
        for shard in parts.shards:
            self._follow(shard)
        process.guard(self.member.start)
        process.later(_INBOX_MS, self._move_inbox)
        parts.database.fired("node boot")

    def kill(self) -> bool:
        """Ends the process (kill -9); it starts again later."""
        if self.process is None:
            return False
        self._parts.clock.note(f"{self.name} killed")
        self.end()
        low, high = _BOOT_US
        self._parts.clock.after(int(low * (high / low) ** self._rng.random()), "boot", self.boot)
        return True

    def end(self) -> None:
        """Ends the process."""
        if self.process is not None:
            self.process.is_alive = False
        self.process = None
        for server in self.servers.values():
            self._parts.shards[server.shard].front.end(server)
        for shard in self.followed:
            self._count_rebuilt(shard)
        self.servers, self.followers, self.followed, self._leading = {}, {}, {}, {}
        threads, links, self._threads, self._links = self._threads, self._links, [], []
        for thread in threads:
            thread.end()
        for link in links:
            self._parts.database.on_crash.remove(link.cut)

    def pause(self, for_us: int) -> bool:
        """Stops the process for a while."""
        if self.process is None:
            return False
        self.process.stall(for_us)
        self.process.late_timers_us = self._rng.choice([0, self._rng.randint(*_LATE_US)])
        return True

    def wake_if_leading(self, shard: int, delay_us: int) -> None:
        """Continues a stopped process that led a shard, a little later."""
        process = self.process
        if process is not None and shard in self.servers and process.stalled_until_us > self._parts.clock.now_us:
            self._parts.database.fired("woke up after a takeover")
            self._parts.clock.after(delay_us, "wakes up", process.wake)

    def restart_cleanly(self) -> bool:
        """Drains the node, and starts it again."""
        process = self.process
        if process is None or process.stalled_until_us > self._parts.clock.now_us:
            return False
        over = self.member.leave
        process.guard(lambda: self.member.drain(lambda: over(lambda: self._left(process))))
        limit_us = _DRAIN_LEASES * self._parts.settings.lease_ms * 1_000
        self._parts.clock.after(limit_us, "drain limit", lambda: self._left(process))
        return True

    def _left(self, process: NodeProcess) -> None:
        if self.process is process:
            # Not inside a call of the member, which is on the stack.
            self._parts.clock.after(0, "left", partial(self._kill_if, process))

    def _kill_if(self, process: NodeProcess) -> None:
        if self.process is process:
            self.kill()

    def heal(self) -> None:
        """Ends all faults of this node."""
        self.clock.offset_ms = 0
        self.faults = LinkFaults()
        for link in self._links:
            link.faults = self.faults
        if self.process is not None:
            self.process.wake()

    def _thread(self, name: str) -> ProcessThread:
        assert self.process is not None
        self._threads.append(ProcessThread(self.process, self._rng, f"{self.name} {name}"))
        return self._threads[-1]

    def _link(self, thread: ProcessThread) -> DatabaseLink:
        parts = self._parts
        self._links.append(DatabaseLink(parts.database, thread, self._rng, self.faults, parts.settings.limit_ms))
        return self._links[-1]

    # -- following

    def _follow(self, shard: int) -> None:
        parts, process = self._parts, self.process
        assert process is not None
        thread = self._thread(f"follower {shard}")
        followed = FollowedLedger(
            shard,
            SimulatedFrameReader(self._link(thread), shard),
            parts.shards[shard].snapshots,
            ledger_config(parts.shards[shard].settings),
            read_bytes=parts.settings.read_bytes,
        )
        follower = ShardFollower(shard, process, thread, followed, parts.settings.lease_ms // 2)
        self.followers[shard], self.followed[shard] = follower, followed
        follower.start()

    def _count_rebuilt(self, shard: int) -> None:
        for _ in range(self.followed[shard].rebuilt):
            self._parts.database.fired("follower rebuilt")

    def _applied(self) -> dict[int, int]:
        positions = {shard: follower.position for shard, follower in self.followers.items() if follower.can_lead}
        return positions | {shard: server.journal.end_position for shard, server in self.servers.items()}

    def check_followers(self) -> None:
        """Checks that no follower has diverged, and that those at the end of the log have its state."""
        for shard, follower in self.followers.items():
            problem = f"{self.name} diverged on shard {shard}: {follower.problem}"
            require(follower.state is not FollowerState.DIVERGED, problem)
            shadow = self._parts.shards[shard].log.witness.shadow
            if follower.state is FollowerState.FOLLOWING and follower.position == shadow.position:
                is_equal = self.followed[shard].ledger.digest == shadow.digest
                is_last = self.followed[shard].link == self._parts.shards[shard].log.link
                require(is_equal or not is_last, f"{self.name} follows shard {shard} with another state")

    # -- the user of the member

    def on_leading(self, shard: int, epoch: int, lease: LeaseDeadline) -> None:
        """Reads the tail, and starts a coordinator."""
        self._leading[shard] = epoch
        self._parts.shards[shard].log.begin(epoch)
        self.followers[shard].take_over(lambda taken: self._on_taken(shard, epoch, lease, taken))
        if "node-pause" in self._parts.settings.faults and self._rng.random() < _SLOW_TAKEOVERS:
            # An old leader may wake up before this one has written anything.
            self._parts.database.fired("paused after a takeover")
            self.pause(self._rng.randint(0, 500 * self._parts.settings.lease_ms))

    def _on_taken(self, shard: int, epoch: int, lease: LeaseDeadline, taken: TakenOver | None) -> None:
        if self._leading.get(shard) != epoch:
            return
        if taken is None:
            self.member.give_up(shard)
            return
        if self._leading_epoch(shard) == epoch:
            witness = self._parts.shards[shard].log.witness
            end = f"{self.name} took shard {shard} over at {taken.position}, which ends at {witness.position}"
            require(taken.position == witness.position, end)
            witness.compare(taken.ledger)
        thread = self._thread(f"writer {shard}")
        writer = SimulatedFrameWriter(self._link(thread), shard)
        aside = self._thread(f"housekeeper {shard}")
        housekeeper = SimulatedFrameWriter(self._link(aside), shard)
        storage = ShardStorage(writer, housekeeper, lambda: SimulatedFrameReader(self._link(aside), shard))
        leadership = ShardLeadership(shard, bytes(16), epoch, lease, self._events)
        config = JournalConfig(segment_bytes=self._parts.settings.segment_bytes)
        store = ClusterStore(
            leadership, taken, storage, thread.wait, config, lambda _: self._housekeeping(shard, aside)
        )
        settings = self._parts.shards[shard].settings
        thread.run(
            lambda: open_store(store, settings),
            lambda result: self._on_open(leadership, store, thread, result),
            is_lone=False,
        )

    def _housekeeping(self, shard: int, aside: ProcessThread) -> Housekeeping:
        parts, process = self._parts, self.process
        assert process is not None
        settings, snapshots = parts.settings, parts.shards[shard].snapshots
        config = KeeperConfig(
            snapshot_bytes=2 * settings.segment_bytes,
            history_ms=settings.snapshot_ms,
            history_bytes=_HISTORY_SEGMENTS * settings.segment_bytes,
            look_ms=settings.snapshot_ms // 4,
        )
        maker = SnapshotMaker(process, self._rng, parts.shards[shard].log, snapshots)
        return Housekeeping(snapshots, maker, aside, config, lambda: None)

    def _on_open(
        self, leadership: ShardLeadership, store: ClusterStore, thread: ProcessThread, result: int | BaseException
    ) -> None:
        shard, epoch, process, parts = leadership.shard, leadership.epoch, self.process, self._parts
        assert process is not None
        if isinstance(result, LeadershipLostError):
            self.member.give_up(shard)
            return
        if isinstance(result, BaseException):
            raise Violation(f"{self.name} could not open shard {shard}: {result!r}") from result
        if self._leading.get(shard) != epoch:
            return
        ports = CoordinatorPorts(self.clock, process, thread, lambda error: self._on_fatal(shard, epoch, error))
        server = ClusterServer(
            shard, process, ports, store, parts.shards[shard].settings, parts.mint, lambda: self._leading_epoch(shard)
        )
        self.servers[shard] = server
        parts.shards[shard].front.begin(server)
        parts.database.fired("leadership")
        server.coordinator.start(f"{self.name}-{self._lives}-{epoch}")

    def _leading_epoch(self, shard: int) -> int:
        return self._parts.database.rows.leaders[shard].epoch

    def _on_fatal(self, shard: int, epoch: int, error: BaseException) -> None:
        """Steps down: another node may lead."""
        if not isinstance(error, LeadershipLostError):
            raise Violation(f"{self.name} stopped without cause: {error!r}") from error
        server = self.servers.get(shard)
        if server is not None and server.epoch == epoch:
            self._parts.database.fired("stepped down")
            self._drop(server)
            self.member.give_up(shard)

    def on_handing_over(self, shard: int, done: Callable[[], None]) -> None:
        """Stops the coordinator cleanly."""
        self._parts.database.fired("handover")
        server = self.servers.get(shard)
        if server is None:
            self._leading.pop(shard, None)
            done()
        else:
            server.coordinator.stop(done)

    def on_lost(self, shard: int, reason: str) -> None:
        """Drops the state, and follows again."""
        self._parts.database.fired(f"lost {reason}")
        self._leading.pop(shard, None)
        server = self.servers.get(shard)
        if server is not None:
            self._drop(server)
            server.coordinator.commit.fail(LeadershipLostError(f"shard {shard}: {reason}"))
        self.followers[shard].close()
        self._count_rebuilt(shard)
        if self.process is not None:
            self._follow(shard)

    def _drop(self, server: ClusterServer) -> None:
        del self.servers[server.shard]
        self._parts.shards[server.shard].front.end(server)

    def on_view(self, view: ClusterView) -> None:
        """Learns which events may be written."""
        self._events.writable = writable_events(view, self._parts.settings.lease_ms)
        self._check_leases()

    def _check_leases(self) -> None:
        """Checks that every lease ends here before it ends in the database; one that is handed over may be over."""
        database = self._parts.database
        for shard, lead in self.member._leads.items():  # noqa: SLF001 - the deadlines by which the node acts
            if lead.move is None and not lead.lease.has_ended:
                row = database.rows.leaders[shard]
                what = f"{self.name} would lead shard {shard} under epoch {lead.epoch}"
                require(row.epoch == lead.epoch, f"{what} while epoch {row.epoch} leads")
                left_ms = row.ends_ms - database.now_ms()
                require(
                    lead.lease.left_ms < left_ms, f"{what} for {lead.lease.left_ms} ms, and the lease has {left_ms}"
                )

    def on_failed(self, error: BaseException) -> None:
        """Fails the run."""
        raise Violation(f"{self.name} failed: {error!r}") from error

    # -- the inbox

    def _move_inbox(self) -> None:
        """Submits the rows of the inbox that this node sees, from time to time."""
        process = self.process
        assert process is not None
        for shard, server in list(self.servers.items()):
            inbox = self._parts.database.rows.inbox
            server.move([row for row, (place, _) in inbox.items() if place == shard])
        process.later(_INBOX_MS, self._move_inbox)


def _no_power_cut() -> None:
    raise AssertionError("a node has no simulated disk")


def _no_fatal(error: BaseException) -> None:
    raise AssertionError("a node has a fatal handler of its own") from error
