"""One cluster in PostgreSQL, as a node opens its parts: each has a connection of its own, opened by its first call."""

from collections.abc import Callable

from holdfast.topologies.cluster.database.address import DatabaseAddress
from holdfast.topologies.cluster.database.archive import PostgresArchive
from holdfast.topologies.cluster.database.commit_signals import CommitSignal, CommitSignals, FrameAnnouncer
from holdfast.topologies.cluster.database.creation import ClusterIdentity
from holdfast.topologies.cluster.database.frame_reader import PostgresFrameReader
from holdfast.topologies.cluster.database.frame_writer import PostgresFrameWriter
from holdfast.topologies.cluster.database.registry import PostgresRegistry


class ClusterDatabase:
    """The database of a cluster that exists."""

    def __init__(self, address: DatabaseAddress, identity: ClusterIdentity) -> None:
        self._address = address
        self.cluster_id = identity.cluster_id
        #: The number of shards, which never changes.
        self.shards = identity.shards

    def registry(self) -> PostgresRegistry:
        """Returns the registry of nodes and leaderships."""
        return PostgresRegistry(self._address)

    def writer(self, shard: int) -> PostgresFrameWriter:
        """Returns a writer of the frames of a shard."""
        return PostgresFrameWriter(self._address, shard)

    def reader(self, shard: int) -> PostgresFrameReader:
        """Returns a reader of the frames of a shard."""
        return PostgresFrameReader(self._address, shard)

    def archive(self, shard: int) -> PostgresArchive:
        """Returns the frames and snapshots of a shard, for snapshots and time travel."""
        return PostgresArchive(self._address, shard)

    def signals(self, heard: Callable[[CommitSignal], None]) -> CommitSignals:
        """Returns a receiver of the signals of other nodes."""
        return CommitSignals(self._address, heard)

    def announcer(self) -> FrameAnnouncer:
        """Returns a sender of signals about new frames."""
        return FrameAnnouncer(self._address)
