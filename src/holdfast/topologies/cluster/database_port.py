"""The database of a cluster, as a node opens its parts: each has a connection of its own, opened by its first call."""

from typing import Protocol

from holdfast.journal.archive import JournalArchive
from holdfast.topologies.cluster.ports import FrameReader, FrameWriter, Registry


class ClusterDatabase(Protocol):
    """One cluster in one database."""

    @property
    def cluster_id(self) -> bytes:
        """Sixteen bytes that identify the cluster."""
        ...

    @property
    def shards(self) -> int:
        """The number of shards, which never changes."""
        ...

    def registry(self) -> Registry:
        """Returns the registry of nodes and leaderships."""
        ...

    def writer(self, shard: int) -> FrameWriter:
        """Returns a writer of the frames of a shard."""
        ...

    def reader(self, shard: int) -> FrameReader:
        """Returns a reader of the frames of a shard."""
        ...

    def archive(self, shard: int) -> JournalArchive:
        """Returns the frames and snapshots of a shard, for snapshots and time travel."""
        ...
