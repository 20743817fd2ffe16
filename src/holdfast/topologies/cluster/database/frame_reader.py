"""`ShardReader` on PostgreSQL: reads one segment at a time, so that a statement locks one partition.

Invariant: frames are returned in order, without gaps and verified. A damaged or missing one raises. The caller verifies
the link of the first one: after a failover, a frame that was never replicated is gone, and others are in its place.
"""

import msgspec

from holdfast.journal.errors import PositionRemovedError
from holdfast.postgres.statements import statements
from holdfast.topologies.cluster.database.address import DatabaseAddress
from holdfast.topologies.cluster.database.frame_rows import frame_of
from holdfast.topologies.cluster.database.session import DatabaseSession
from holdfast.topologies.cluster.frame_checksum import missing, verify
from holdfast.topologies.cluster.ports import StoredFrame

_SQL = statements(__package__, "frames")


class SegmentBounds(msgspec.Struct, frozen=True):
    """The first position of a segment, and its last one if it is sealed."""

    first: int
    last: int | None


class PostgresFrameReader:
    """The frames of one shard, for standbys and for the takeover. One thread at a time calls it."""

    def __init__(self, address: DatabaseAddress, shard: int) -> None:
        self._session = DatabaseSession(address, replans=True)
        self._shard = shard
        self._segments: list[SegmentBounds] = []

    def frames(self, after: int, bytes_max: int) -> list[StoredFrame]:
        """Returns the next frames past a position, at least one if there is one, else about `bytes_max` of bodies.

        A frame that contains `after` is returned whole. Raises `PositionRemovedError` if the next position was
        removed, and `JournalDamagedError` for a damaged or missing frame.
        """
        if self._segments and (found := self._read(after, bytes_max)):
            return found
        self._segments = self.segments()
        if found := self._read(after, bytes_max):
            return found
        self._refuse_gap(after)
        return []

    def first_position(self) -> int:
        """Returns the lowest position that is stored; the end position + 1 if none is."""
        return self.segments()[0].first

    def end_position(self) -> int:
        """Returns the last position of the newest frame; 0 if there is none."""
        return self.end()[0]

    def end(self) -> tuple[int, int]:
        """Returns the last position of the newest frame, and the epoch of the shard."""
        ((position, epoch),) = self._session.read(_SQL["end_position"], {"shard": self._shard})
        return position, epoch

    def segments(self) -> list[SegmentBounds]:
        """Returns the bounds of the segments, oldest first; the newest has no last position."""
        return [SegmentBounds(*row) for row in self._session.read(_SQL["bounds"], {"shard": self._shard})]

    def close(self) -> None:
        """Closes the connection; harmless if there is none."""
        self._session.close()

    def _read(self, after: int, bytes_max: int) -> list[StoredFrame]:
        arguments = {"shard": self._shard, "segment": self._segment_of(after + 1).first}
        rows = self._session.read(_SQL["frames"], {**arguments, "after": after, "bytes_max": max(1, bytes_max)})
        found = [frame_of(row) for row in rows]
        self._verify(found, after)
        return found

    def _verify(self, frames: list[StoredFrame], after: int) -> None:
        link: int | None = None
        for frame in frames:
            verify(frame, shard=self._shard, after=after, link=link)
            after, link = frame.last_position, frame.checksum

    def _segment_of(self, position: int) -> SegmentBounds:
        """Returns the newest segment that begins at or before a position."""
        for segment in reversed(self._segments):
            if segment.first <= position:
                return segment
        first = self._segments[0].first
        message = f"positions {position} to {first - 1} are no longer in the journal; a snapshot covers them"
        raise PositionRemovedError(message, reason="POSITION_REMOVED")

    def _refuse_gap(self, after: int) -> None:
        """Raises if the next position is in a sealed segment, which has no frame with it."""
        segment = self._segment_of(after + 1)
        if segment.last is not None and after < segment.last:
            self._segments = self.segments()
            self._segment_of(after + 1)  # it may have been removed meanwhile
            raise missing(self._shard, after + 1)
