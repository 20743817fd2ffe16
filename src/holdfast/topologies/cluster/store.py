"""The `LedgerStore` of one leadership: the journal in the database, and the state that a follower has taken over.

The coordinator gets two hooks. `commit.vouch` replaces replies that only the lease supports, once the lease has ended;
`unwritable` refuses events that another node does not know.
"""

from collections.abc import Callable

import msgspec

from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.journal.archive import SnapshotStore
from holdfast.journal.port import Journal, JournalConfig
from holdfast.ledger.coordinator import NOT_LEADER, Coordinator
from holdfast.ledger.log_clock import ClockMark
from holdfast.ledger.past_events import PastEvents
from holdfast.ledger.ports import SyncThread
from holdfast.ledger.recovery import Progress
from holdfast.ledger.snapshot_keeper import Builder, SnapshotHealth, SnapshotKeeper
from holdfast.ledger.snapshot_policy import KeeperConfig, StoredSnapshots
from holdfast.topologies.cluster.durable_writer import Wait
from holdfast.topologies.cluster.event_versions import EventGate
from holdfast.topologies.cluster.follower import TakenOver
from holdfast.topologies.cluster.history import ClusterHistory
from holdfast.topologies.cluster.journal import ClusterJournal, JournalOpening, ShardStorage
from holdfast.topologies.cluster.lease_deadline import LeaseDeadline


class ShardLeadership(msgspec.Struct, frozen=True):
    """One leadership of a shard, as the member announced it."""

    shard: int
    cluster_id: bytes
    epoch: int
    lease: LeaseDeadline
    events: EventGate


class Housekeeping(msgspec.Struct, frozen=True):
    """The helpers that make the snapshots of a shard and remove its old segments; `close` ends them."""

    snapshots: SnapshotStore
    maker: Builder
    aside: SyncThread
    config: KeeperConfig
    close: Callable[[], None]


class ClusterStore:
    """One opening of a shard, by its leader."""

    is_blocking = True

    def __init__(
        self,
        leadership: ShardLeadership,
        taken: TakenOver,
        storage: ShardStorage,
        wait: Wait,
        config: JournalConfig,
        begin_housekeeping: Callable[[Coordinator], Housekeeping] | None = None,
        list_snapshots: Callable[[], StoredSnapshots] | None = None,
    ) -> None:
        """`begin_housekeeping` is called with the coordinator; without it, no snapshot is made here.

        `list_snapshots` is called by `open`, which may block; without it, the housekeeping begins with a list.
        """
        self._leadership = leadership
        self._taken = taken
        self._storage = storage
        self._wait = wait
        self._config = config
        self._begin_housekeeping = begin_housekeeping
        self._list_snapshots = list_snapshots
        self._stored: StoredSnapshots | None = None
        self._housekeeping: Housekeeping | None = None
        self.snapshots = SnapshotHealth()
        self.journal: Journal
        self._journal: ClusterJournal | None = None

    def open(self, config: LedgerConfig, now_ms: int, progress: Progress) -> Ledger:
        """Opens the journal where the taken state ends; the state was made with this configuration."""
        del now_ms, progress
        leadership, taken = self._leadership, self._taken
        assert taken.ledger.config == config, "the follower has the settings of the coordinator"
        opening = JournalOpening(
            shard=leadership.shard,
            cluster_id=leadership.cluster_id,
            epoch=leadership.epoch,
            end_position=taken.position,
            link=taken.link,
        )
        self.journal = self._journal = ClusterJournal(
            self._storage, opening, leadership.lease, self._wait, self._config
        )
        if self._list_snapshots is not None:
            self._stored = self._list_snapshots()
        return taken.ledger

    @property
    def ledger(self) -> Ledger:
        """The state at the end of the journal when it was opened."""
        return self._taken.ledger

    def clock_mark(self) -> ClockMark | None:
        """Returns None: the previous leader may have been on another machine."""
        return None

    def attach(self, coordinator: Coordinator) -> PastEvents | None:
        """Installs the hooks, begins to make snapshots, and returns the past events."""
        journal = self._journal
        assert journal is not None, "the store is open"
        coordinator.commit.vouch = self._vouched
        coordinator.unwritable = self._leadership.events.refusal
        if self._begin_housekeeping is not None:
            self._housekeeping = house = self._begin_housekeeping(coordinator)
            keeper = SnapshotKeeper(
                coordinator.commit, journal, house.snapshots, house.maker, house.aside, house.config, self._stored
            )
            self.snapshots = keeper.health
        return ClusterHistory(journal)

    def _vouched(self, reply: object) -> object:
        """Returns the reply if this node led when the state was read: the lease has not ended afterwards."""
        return NOT_LEADER if self._leadership.lease.has_ended else reply

    def disown(self) -> None:
        """Does nothing: there is no lock."""

    async def close(self) -> None:
        """Ends the housekeeping, and closes the journal, or what there is of it after a failed opening."""
        if self._housekeeping is not None:
            self._housekeeping.close()
        if self._journal is not None:
            self._journal.close()
        else:
            self._storage.writer.close()
            self._storage.housekeeper.close()
