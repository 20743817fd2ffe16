"""A simulated database with the parts of nodes around it; time passes only while something is waited for."""

import random
from collections.abc import Callable
from typing import TypeVar

from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.journal.port import JournalConfig
from holdfast.topologies.cluster.event_versions import KNOWN_EVENTS
from holdfast.topologies.cluster.followed_ledger import FollowedLedger
from holdfast.topologies.cluster.journal import ClusterJournal, JournalOpening, ShardStorage
from holdfast.topologies.cluster.lease_deadline import LeaseDeadline
from holdfast.topologies.cluster.ports import NodeRecord
from holdfast_lab.simulation.cluster_node import NodeClock, NodeProcess
from holdfast_lab.simulation.cluster_snapshots import SimulatedSnapshots
from holdfast_lab.simulation.database_connections import (
    DatabaseLink,
    LinkFaults,
    SimulatedFrameReader,
    SimulatedFrameWriter,
    SimulatedRegistry,
    run_blocking,
)
from holdfast_lab.simulation.process_thread import ProcessThread
from holdfast_lab.simulation.scheduler import SimulatedScheduler
from holdfast_lab.simulation.simulated_database import SimulatedDatabase

T = TypeVar("T")
LEASE_MS = 900
LIMIT_MS = 100
CLUSTER_ID = bytes(16)
_PATIENCE_US = 60_000_000


def node_record(name: str = "a", **changes: object) -> NodeRecord:
    """Returns the entry of a node that serves."""
    fields: dict[str, object] = {
        "name": name,
        "incarnation": f"{name}-1",
        "addresses": {},
        "pid": 1,
        "events": KNOWN_EVENTS,
        "state": "serving",
        "applied": {0: 0},
    }
    return NodeRecord(**{**fields, **changes})  # type: ignore[arg-type]


class ClusterRig:
    """One database, and a process from which the test calls it."""

    def __init__(self, shards: int = 1) -> None:
        self.time = SimulatedScheduler()
        self.database = SimulatedDatabase(self.time, random.Random(1), shards)
        self.clock = NodeClock(self.time, 0, 0)
        self.process = NodeProcess(self.time, random.Random(2), self.clock)
        self.snapshots = SimulatedSnapshots()
        self._threads: list[ProcessThread] = []

    def thread(self) -> ProcessThread:
        """Returns a new thread of the process."""
        self._threads.append(ProcessThread(self.process, random.Random(3), "test"))
        return self._threads[-1]

    def close(self) -> None:
        """Ends all threads."""
        for thread in self._threads:
            thread.end()

    def link(self, thread: ProcessThread, faults: LinkFaults | None = None) -> DatabaseLink:
        """Returns a new connection."""
        return DatabaseLink(self.database, thread, random.Random(4), faults or LinkFaults(), LIMIT_MS)

    def do(self, call: Callable[[], T], thread: ProcessThread | None = None) -> T:
        """Runs blocking code to its end."""
        return run_blocking(self.database, thread or self.thread(), call)

    def until(self, holds: Callable[[], bool]) -> None:
        """Lets time pass until something holds."""
        end_us = self.time.now_us + _PATIENCE_US
        while not holds():
            assert self.time.step(), "nothing happens any more"
            assert self.time.now_us < end_us, "it does not happen"

    def pass_ms(self, for_ms: int) -> None:
        """Lets time pass."""
        passed = list[bool]()
        self.time.after(for_ms * 1_000, "test", lambda: passed.append(True))
        self.until(lambda: bool(passed))

    # -- parts

    def take(self, shard: int = 0, name: str = "a") -> int:
        """Makes a node the leader of a shard, without a member; returns the epoch."""
        thread = self.thread()
        registry = SimulatedRegistry(self.link(thread))
        seen = self.database.rows.leaders[shard].epoch
        epoch = self.do(lambda: registry.take(shard, seen, node_record(name), LEASE_MS), thread)
        assert epoch is not None
        return epoch

    def lease(self, for_ms: int = 1_000_000) -> LeaseDeadline:
        """Returns a lease of this process."""
        return LeaseDeadline(self.clock, self.clock.steady_ms() + for_ms)

    def journal(
        self,
        epoch: int,
        *,
        end: tuple[int, int] = (0, 0),
        lease: LeaseDeadline | None = None,
        faults: LinkFaults | None = None,
        segment_bytes: int = 1 << 20,
    ) -> tuple[ClusterJournal, ProcessThread]:
        """Returns the journal of shard 0 under an epoch, and the thread that may call it."""
        thread = self.thread()
        storage = ShardStorage(
            SimulatedFrameWriter(self.link(thread, faults), 0),
            SimulatedFrameWriter(self.link(thread), 0),
            lambda: SimulatedFrameReader(self.link(thread), 0),
        )
        opening = JournalOpening(shard=0, cluster_id=CLUSTER_ID, epoch=epoch, end_position=end[0], link=end[1])
        config = JournalConfig(segment_bytes=segment_bytes)
        deadline = lease or self.lease()
        journal = self.do(lambda: ClusterJournal(storage, opening, deadline, thread.wait, config), thread)
        return journal, thread

    def followed(self, thread: ProcessThread) -> FollowedLedger:
        """Returns the state of shard 0, not read yet."""
        reader = SimulatedFrameReader(self.link(thread), 0)
        return FollowedLedger(0, reader, self.snapshots, LedgerConfig(), read_bytes=200)


def new_ledger() -> Ledger:
    """Returns an empty ledger with the settings of the rig."""
    return Ledger(LedgerConfig())
