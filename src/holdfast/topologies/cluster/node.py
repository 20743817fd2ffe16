"""One node of a cluster: it follows every shard, leads some of them, and forwards calls about the others.

Clients and workers of our own connect to the leader of a shard, which another node names to them. All other callers
(HTTP, gRPC) may call any node: its public server forwards their calls, over the same client that apps use.
"""

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping, Sequence

import msgspec

from holdfast.client.discovery import Places
from holdfast.client.remote import RemoteJobs
from holdfast.client.routed_jobs import RoutedJobs
from holdfast.client.shard_endpoint import ClusterNodes, ShardEndpoint
from holdfast.client.wire_transport import ReconnectingTransport
from holdfast.clock import system_clock
from holdfast.core.condition import Condition
from holdfast.core.events import AnyEvent
from holdfast.core.ledger import Ledger
from holdfast.journal.descriptors import DescriptorReserve
from holdfast.ledger.asyncio_shell import AsyncioScheduler, SyncingThread
from holdfast.ledger.coordinator import Coordinator
from holdfast.ledger.service import LedgerCore
from holdfast.ledger.snapshot_policy import KeeperConfig
from holdfast.observe.log_setup import ByteStream, line_writer
from holdfast.observe.logs import get_logger
from holdfast.observe.transitions import TransitionLog
from holdfast.process.helper_process import HelperProcess
from holdfast.server.backend import Backend
from holdfast.server.conditions import local
from holdfast.server.protection import protect
from holdfast.server.public_server import PublicServer
from holdfast.server.wire.connection import WireService
from holdfast.settings import Settings
from holdfast.topologies.cluster import capabilities_of
from holdfast.topologies.cluster.database.cluster_database import ClusterDatabase
from holdfast.topologies.cluster.database.commit_signals import CommitSignal, SignalKind
from holdfast.topologies.cluster.event_versions import KNOWN_EVENTS
from holdfast.topologies.cluster.leadership import SERVING, is_vacant, writable_events
from holdfast.topologies.cluster.lease_deadline import LeaseDeadline
from holdfast.topologies.cluster.member import ClusterMember, MemberPorts
from holdfast.topologies.cluster.ports import ClusterView, NodeRecord
from holdfast.topologies.cluster.shard_host import ShardHost
from holdfast.topologies.cluster.store import Housekeeping

#: How long a leadership lasts without a beat. A beat every third of it is one statement a second.
LEASE_MS = 3_000
_SHARD_PLACE = "shard {} of this cluster"

#: Returns the command of the process that makes a snapshot of a shard.
SnapshotCommand = Callable[[int, int], list[str]]


class NodeIdentity(msgspec.Struct, frozen=True):
    """The name of a node, and the leadership lease, which all nodes of a cluster have in common."""

    name: str
    lease_ms: int = LEASE_MS


class ClusterNode:
    """One node. `start`, then `stop`; every method is called on its event loop."""

    def __init__(
        self,
        settings: Settings,
        identity: NodeIdentity,
        database: ClusterDatabase,
        snapshot_command: SnapshotCommand,
        log_stream: ByteStream,
    ) -> None:
        """`snapshot_command` takes a shard and the size of the parts in which it is made."""
        self._settings = settings
        self._identity = identity
        self._database = database
        self._snapshot_command = snapshot_command
        self._log_stream = log_stream
        self._loop = asyncio.get_running_loop()
        self._hosts = [ShardHost(shard, settings, database, self) for shard in range(database.shards)]
        #: The leader of each shard; "" if there is none.
        self._leaders = [""] * database.shards
        self._nodes = ClusterNodes([])
        self._jobs = self._forwarder()
        self._protection = protect(settings)
        self._public_server = self._make_public_server()
        self._registry = database.registry()
        self._registry_thread = SyncingThread(self._loop, name="holdfast-registry")
        self._transitions: dict[int, TransitionLog] = {}
        self._announcer = database.announcer()
        self._listening: asyncio.Task[None] | None = None
        #: None until the node listens, because its entry in the registry has its addresses.
        self._joined: ClusterMember | None = None
        self.addresses: dict[str, str] = {}
        self.view: ClusterView | None = None
        self._viewed_s = 0.0
        self._all_led = asyncio.Event()

    # -- start and stop

    async def start(self) -> dict[str, str]:
        """Listens, registers the node, and returns its addresses by protocol."""
        self.addresses = await self._public_server.start()
        identity = self._identity
        record = NodeRecord(
            name=identity.name,
            incarnation=secrets.token_hex(8),
            addresses=self.addresses,
            pid=os.getpid(),
            events=KNOWN_EVENTS,
            state=SERVING,
            applied={},
        )
        for host in self._hosts:
            host.follow()
        ports = MemberPorts(system_clock(), AsyncioScheduler(self._loop), self._registry_thread, self._registry)
        self._joined = ClusterMember(ports, self, record, identity.lease_ms, self._applied)
        self._member.start()
        self._listening = self._loop.create_task(self._database.signals(self._on_signal).run())
        return self.addresses

    async def until_led(self) -> None:
        """Returns when every shard has a leader that this node knows."""
        await self._all_led.wait()

    async def drain(self) -> None:
        """Hands all shards over; returns when this node leads none."""
        drained = asyncio.Event()
        self._member.drain(drained.set)
        await drained.wait()

    async def stop(self, drain_s: float) -> None:
        """Hands all shards over, within a time limit, leaves the registry, and closes everything."""
        try:
            async with asyncio.timeout(drain_s):
                await self.drain()
        except TimeoutError:
            get_logger().warning("drain_timeout", message="shards that are still led here are taken over by others")
        await self._public_server.drain()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        left = asyncio.Event()
        self._member.leave(left.set)
        await asyncio.gather(*(host.close() for host in self._hosts))
        await left.wait()
        await self._public_server.stop()
        await self._jobs.close()
        await self._announcer.close()
        await asyncio.to_thread(self._registry_thread.close)
        self._registry.close()
        for transitions in self._transitions.values():
            transitions.flush()
        get_logger().info("stopped")

    @property
    def _member(self) -> ClusterMember:
        assert self._joined is not None, "the node has started"
        return self._joined

    # -- the public server

    def _forwarder(self) -> RemoteJobs | RoutedJobs:
        """Returns a client of all shards, which finds their leaders in the registry."""
        nodes, shards = self._nodes, self._database.shards
        if shards == 1:
            return RemoteJobs(ReconnectingTransport(ShardEndpoint(nodes, 0)))
        names = [_SHARD_PLACE.format(shard) for shard in range(shards)]
        places = Places(names, lambda name, _: ShardEndpoint(nodes, names.index(name)), are_replaced=True)
        return RoutedJobs(places.names, endpoint=places.endpoint)

    def _make_public_server(self) -> PublicServer:
        jobs, shards = self._jobs, self._database.shards
        feed = jobs if shards == 1 else None
        backend = Backend(
            jobs,
            admin=jobs,
            feed=feed,
            schedules=jobs.schedules,
            histories=jobs,
            declared=capabilities_of(shards),
        )
        return PublicServer(
            backend,
            self._settings,
            protection=self._protection,
            conditions=local(self.conditions),
            shards=self,
        )

    def conditions(self) -> Sequence[Condition]:
        """Returns the problems of this node that an operator should check."""
        found = [condition for host in self._hosts for condition in host.conditions()]
        problem = self._joined.problem if self._joined is not None else ""
        return [*found, Condition("the database does not answer", problem.rstrip("."))] if problem else found

    @property
    def public_jobs(self) -> RemoteJobs | RoutedJobs:
        """The jobs of all shards, as the public server of this node reads them."""
        return self._jobs

    def position(self, shard: int) -> int:
        """Returns the last position of a shard that this node has applied."""
        return self._hosts[shard].position

    # -- ShardServices, for the wire

    @property
    def total(self) -> int:
        """The number of shards."""
        return self._database.shards

    def service(self, shard: int) -> WireService | None:
        """Returns the service of a shard that this node leads."""
        return self._hosts[shard].service

    def leader(self, shard: int) -> str:
        """Returns the address of another node that leads a shard; "" if none does, or this one not yet."""
        leader = self._leaders[shard]
        return "" if leader == self._address else leader

    @property
    def _address(self) -> str:
        return wire_address(self.addresses)

    # -- MemberUser

    def on_leading(self, shard: int, epoch: int, lease: LeaseDeadline) -> None:
        """Serves a shard."""
        self._hosts[shard].lead(epoch, lease)

    def on_handing_over(self, shard: int, done: Callable[[], None]) -> None:
        """Stops to serve a shard, cleanly."""
        self._hosts[shard].hand_over(done)

    def on_lost(self, shard: int, reason: str) -> None:
        """Drops a shard."""
        get_logger().info("shard_lost", shard=shard, message=reason)
        self._hosts[shard].lose()

    def on_view(self, view: ClusterView) -> None:
        """Learns the leaders and the events that all nodes know."""
        self.view, self._viewed_s = view, self._loop.time()
        addresses = {node.record.name: wire_address(node.record.addresses) for node in view.nodes}
        for address in addresses.values():
            self._nodes.endpoint(address)
        for shard in view.shards:
            leader = "" if is_vacant(shard) else addresses.get(shard.holder, "")
            self._leaders[shard.shard] = leader
            if leader:
                self._nodes.led(shard.shard, leader)
        allowed = writable_events(view, self._identity.lease_ms)
        for host in self._hosts:
            host.allow(allowed)
        self._check_led()

    def on_failed(self, error: BaseException) -> None:
        """Logs a bug of the registry."""
        get_logger().error("bug", message="a call of the registry failed", exc_info=error)

    def _on_signal(self, signal: CommitSignal) -> None:
        """Reads what another node has written."""
        if signal.kind in (SignalKind.LEADERS, SignalKind.POLL):
            self._member.wake()
        if signal.kind in (SignalKind.FRAMES, SignalKind.POLL):
            for host in self._hosts if signal.shard < 0 else self._hosts[signal.shard : signal.shard + 1]:
                host.wake()

    def _applied(self) -> Mapping[int, int]:
        return {host.shard: host.position for host in self._hosts if host.can_lead}

    def _check_led(self) -> None:
        served = all(
            host.service is not None or (leader and leader != self._address)
            for host, leader in zip(self._hosts, self._leaders, strict=True)
        )
        if served:
            self._all_led.set()

    # -- HostUser

    def wire_service(self, core: LedgerCore) -> WireService:
        """Returns the service for connections to a shard."""
        backend = Backend(core.jobs, core.work, core.admin, core.feed, core.schedules)
        return WireService(
            backend,
            core.terms(),
            guard=self._protection.guard,
            connections_max=self._settings.grpc_connections,
            budget=self._public_server.budget,
        )

    def observe(self, shard: int, coordinator: Coordinator) -> None:
        """Logs the transitions of a shard."""
        writer = line_writer(self._settings.log_format, self._log_stream)
        log = TransitionLog(writer, "holdfast", coordinator.later, self._settings.log_level)
        self._transitions[shard] = log
        coordinator.observers += [log, FrameSignals(lambda: self._announcer.announce(shard))]

    def housekeeping(self, shard: int, coordinator: Coordinator) -> Housekeeping:
        """Begins to make the snapshots of a shard."""
        settings, state = self._settings, coordinator.ledger.state
        maker = HelperProcess(self._loop, lambda: self._snapshot_command(shard, state.bytes_held), DescriptorReserve())
        aside = SyncingThread(self._loop, name=f"holdfast-tidy-{shard}")
        config = KeeperConfig(
            snapshot_bytes=settings.snapshot_bytes,
            history_ms=settings.history_ms,
            history_bytes=settings.history_bytes,
        )

        archive = self._database.archive(shard)

        def close() -> None:
            maker.stop()
            aside.close()
            archive.close()

        return Housekeeping(archive, maker, aside, config, close)

    def give_up(self, shard: int, why: str) -> None:
        """Ends the leadership of a shard that cannot be served here."""
        get_logger().warning("shard_given_up", shard=shard, message=why)
        self._member.give_up(shard)

    def served(self, shard: int) -> None:
        """Notes a change of what this node serves."""
        transitions = self._transitions.get(shard)
        if transitions is not None and self._hosts[shard].service is None:
            transitions.flush()
        self._check_led()


class FrameSignals:
    """An observer of a coordinator that signals each durable frame to the followers."""

    def __init__(self, announce: Callable[[], None]) -> None:
        self._announce = announce

    def applied(self, position: int, event: AnyEvent, ledger: Ledger) -> None:
        """Does nothing: the event is not durable yet."""

    def durable(self, position: int) -> None:
        """Signals."""
        self._announce()

    def bug(self, command: object, error: Exception) -> None:
        """Does nothing: a failed command writes nothing."""


def wire_address(addresses: Mapping[str, str]) -> str:
    """Returns the address for our own clients: the port of HTTP, or that of the wire alone."""
    return addresses.get("wire") or addresses.get("http", "")
