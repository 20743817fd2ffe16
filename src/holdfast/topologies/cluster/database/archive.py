"""`JournalArchive` on PostgreSQL, for readers of one shard in any process.

Every frame that can be read is sealed in the sense of the port: the server shows no uncommitted one. Still,
`sealed_frames` leaves out the newest segment, as in a directory, so that snapshots and retention work on segments.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from holdfast.journal.errors import JournalError, PositionRemovedError
from holdfast.journal.port import Frame
from holdfast.journal.snapshot import SnapshotHeader
from holdfast.postgres.statements import statements
from holdfast.topologies.cluster.database.address import DatabaseAddress
from holdfast.topologies.cluster.database.frame_reader import PostgresFrameReader
from holdfast.topologies.cluster.database.journal_errors import as_journal_errors
from holdfast.topologies.cluster.database.pins import pinned
from holdfast.topologies.cluster.database.session import DatabaseSession
from holdfast.topologies.cluster.database.snapshots import PostgresSnapshots
from holdfast.topologies.cluster.frame_chain import FrameChain
from holdfast.topologies.cluster.frame_checksum import damaged

_SQL = statements(__package__, "creation")

#: The bodies that one statement of a replay reads: large enough that the round trips cost little.
_READ_BYTES = 4 * 1024 * 1024


class PostgresJournalView:
    """The journal of a shard at one instant."""

    def __init__(self, address: DatabaseAddress, shard: int) -> None:
        self._address = address
        self._shard = shard
        with _reader(address, shard) as reader:
            self.end_position, self.epoch = reader.end()
            segments = reader.segments()
        first, self._sealed_end = segments[0].first, segments[-1].first - 1
        self.first_position = first if self.end_position else 1
        self._stored_first = first

    def frames(self, after: int = 0, *, link: int | None = None) -> Iterator[Frame]:
        """Yields the frames past `after`; raises as `Journal.replay` does."""
        return self.until(self.end_position, after, link)

    def sealed_frames(self, after: int, link: int | None) -> Iterator[Frame]:
        """Yields the frames of all segments but the newest."""
        return self.until(self._sealed_end, after, link) if after < self._sealed_end else iter(())

    def until(self, end: int, after: int, link: int | None) -> Iterator[Frame]:
        """Yields the frames past `after` up to the one that ends at `end`."""
        if after + 1 < self._stored_first:
            raise _removed(after + 1, self._stored_first)
        if after > end:
            raise damaged(self._shard, after, f"the journal ends with position {end}, before the requested one")
        return self._read(end, after, link)

    def _read(self, end: int, after: int, link: int | None) -> Iterator[Frame]:
        with _reader(self._address, self._shard) as reader:
            chain = self._chain(reader, after, link)
            while chain.position < end:
                part = reader.frames(chain.position, _READ_BYTES)
                if not part or part[0].first_position > chain.position + 1:
                    raise self._gap(reader, chain.position + 1, end)
                for frame in part:
                    if frame.first_position > end:
                        return
                    yield chain.check(frame)

    def _chain(self, reader: PostgresFrameReader, after: int, link: int | None) -> FrameChain:
        """Returns a chain that begins behind the frame that ends at `after`, which must have this checksum."""
        if link is None or after < self._stored_first:
            return FrameChain(self._shard, after, link)
        before = reader.frames(after - 1, 1)
        if before and before[0].last_position == after and before[0].checksum != link:
            raise damaged(self._shard, after, "the frame that ends there belongs to another history")
        is_boundary = bool(before) and before[0].last_position == after
        return FrameChain(self._shard, after, link if is_boundary else None)

    def _gap(self, reader: PostgresFrameReader, position: int, end: int) -> JournalError:
        first = reader.first_position()
        if position < first:
            return _removed(position, first)
        return damaged(self._shard, position, f"expected frames up to position {end}, found none with this position")


class PostgresArchive:
    """The frames and snapshots of one shard. One thread at a time uses it."""

    def __init__(self, address: DatabaseAddress, shard: int) -> None:
        self._address = address
        self._shard = shard
        self._session = DatabaseSession(address)
        self._snapshots = PostgresSnapshots(self._session, shard)

    def cluster_id(self) -> bytes:
        """Returns the id of the cluster, which all shards have."""
        with as_journal_errors():
            ((cluster_id, _),) = self._session.read(_SQL["identity"])
        return bytes(cluster_id)

    def view(self) -> PostgresJournalView:
        """Returns the journal as it is now."""
        return PostgresJournalView(self._address, self._shard)

    @contextmanager
    def _pin(self, position: int) -> Iterator[None]:
        with ExitStack() as stack:
            with as_journal_errors():
                stack.enter_context(pinned(self._address, self._shard, position))
            yield

    def pin(self, position: int) -> AbstractContextManager[None]:
        """Keeps the frames from `position` on until the block ends."""
        return self._pin(position)

    def sealed_frames(self, after: int = 0, *, link: int | None = None) -> Iterator[Frame]:
        """Yields the frames of all segments but the newest."""
        return self.view().sealed_frames(after, link)

    def snapshots(self) -> list[int]:
        """Returns the positions of all snapshots, oldest first, including damaged ones."""
        return self._snapshots.positions()

    def snapshot_header(self, position: int) -> SnapshotHeader:
        """Returns the header of a snapshot; raises SnapshotDamagedError if it is damaged."""
        return self._snapshots.find(position).header

    def snapshot_chunks(self, position: int) -> Iterator[bytes]:
        """Yields the chunks of a snapshot; raises SnapshotDamagedError at a damaged part."""
        return self._snapshots.chunks(position)

    def snapshot_bytes(self, position: int) -> int:
        """Returns the size of the chunks of a snapshot."""
        return self._snapshots.find(position).bytes

    def write_snapshot(self, header: SnapshotHeader, chunks: Iterable[bytes]) -> None:
        """Writes a snapshot, durable when this returns; a failure leaves none."""
        self._snapshots.write(header, chunks)

    def remove_snapshot(self, position: int, *, is_durable: bool = False) -> None:
        """Removes the snapshot at `position` if there is one; always durable."""
        self._snapshots.remove(position)

    def free_bytes(self) -> float:
        """Returns infinity: the server does not tell the size of its disk."""
        return math.inf

    def close(self) -> None:
        """Closes the connection; harmless if there is none."""
        self._session.close()


@contextmanager
def _reader(address: DatabaseAddress, shard: int) -> Iterator[PostgresFrameReader]:
    reader = PostgresFrameReader(address, shard)
    try:
        with as_journal_errors():
            yield reader
    finally:
        reader.close()


def _removed(position: int, first: int) -> PositionRemovedError:
    message = f"positions {position} to {first - 1} are no longer in the journal; a snapshot covers them"
    return PositionRemovedError(message, reason="POSITION_REMOVED")
