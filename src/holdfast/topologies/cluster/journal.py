"""The journal of a shard in a database: the `Journal` of the coordinator that leads the shard under one epoch.

Invariants (beside those of the port):
- Every frame is sealed with a checksum, and links to the frame before it.
- `write` returns only when the frame is durable under this epoch; its outcome is never guessed (see durable_writer.py).
- Space is never refused: the database has no limit that a frame could be reserved against.
- Segments are known here without asking the database, because the loop's thread reads them.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from holdfast.journal.errors import (
    JournalClosedError,
    JournalDamagedError,
    JournalFailedError,
    LeadershipLostError,
    PositionRemovedError,
)
from holdfast.journal.frame import FRAME_OVERHEAD
from holdfast.journal.port import Frame, JournalConfig, SegmentInfo
from holdfast.topologies.cluster.durable_writer import DurableWriter, Wait
from holdfast.topologies.cluster.frame_chain import FrameChain
from holdfast.topologies.cluster.frame_checksum import seal
from holdfast.topologies.cluster.lease_deadline import LeaseDeadline
from holdfast.topologies.cluster.ports import (
    Append,
    DatabaseLostError,
    DatabaseRefusedError,
    ShardReader,
    ShardWriter,
    StoredFrame,
)

#: The bodies of frames that a replay reads at once.
_REPLAY_BYTES = 1 << 20
#: A segment is the unit in which history is removed, so that a quiet shard also begins a new one from time to time.
SEGMENT_MS = 6 * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalOpening:
    """The end of a shard's frames after the takeover, from which the new leader continues."""

    shard: int
    cluster_id: bytes
    epoch: int
    end_position: int
    #: The checksum of the frame that ends there; 0 if there is none.
    link: int


@dataclass(frozen=True, slots=True)
class ShardStorage:
    """The connections of a leader to its shard: one for the loop's frames, one for housekeeping, and readers."""

    writer: ShardWriter
    housekeeper: ShardWriter
    open_reader: Callable[[], ShardReader]


class ClusterJournal:
    """The `Journal` of one leadership. `write` runs on one thread, `remove_segments` on another."""

    def __init__(
        self,
        storage: ShardStorage,
        opening: JournalOpening,
        lease: LeaseDeadline,
        wait: Wait,
        config: JournalConfig,
        segment_ms: int = SEGMENT_MS,
    ) -> None:
        """Reads the segments from the database; raises LeadershipLostError if it cannot until the lease ends."""
        self._storage = storage
        self._opening = opening
        self._durable = DurableWriter(storage.writer, lease, wait)
        self._config = config
        self._segment_ms = segment_ms
        self._segments = tuple(self._durable.segments())
        self._end_position, self._end_checksum = opening.end_position, opening.link
        self._inbox: deque[tuple[int, int]] = deque()
        self._failure: JournalFailedError | None = None
        self._is_closed = False
        #: Two threads replace the segments.
        self._lock = threading.Lock()

    @property
    def cluster_id(self) -> bytes:
        """The id of the cluster."""
        return self._opening.cluster_id

    @property
    def epoch(self) -> int:
        """The epoch of this leadership."""
        return self._opening.epoch

    @property
    def first_position(self) -> int:
        """The lowest position that is kept."""
        return self._segments[0].first_position if self._segments else 1

    @property
    def end_position(self) -> int:
        """The last durable position."""
        return self._end_position

    @property
    def end_checksum(self) -> int:
        """The checksum of the last durable frame."""
        return self._end_checksum

    # -- reading

    def replay(self, after: int = 0, *, link: int | None = None) -> Iterator[Frame]:
        """Yields the frames past `after` on a connection of its own, up to the end that is durable now."""
        self._refuse_if_ended()
        end = self._end_position
        if after + 1 < self.first_position:
            raise PositionRemovedError(f"positions up to {self.first_position - 1} are no longer kept")
        if after > end:
            shard = f"shard {self._opening.shard}"
            raise JournalDamagedError(shard, 0, after, f"it ends at position {end}", advice="check the position")
        return self._frames(after, end, link)

    def _frames(self, after: int, end: int, link: int | None) -> Iterator[Frame]:
        reader = self._storage.open_reader()
        try:
            yield from read_frames(reader, FrameChain(self._opening.shard, after, link), end)
        except DatabaseLostError as error:
            raise JournalFailedError(error.message) from error
        finally:
            reader.close()

    # -- writing

    def reserve(self, size: int, *, spare: int = 0) -> bool:
        """Returns True: the database has room, or the write fails."""
        del size, spare
        self._refuse_if_ended()
        return True

    def release(self, size: int) -> None:
        """Does nothing: nothing is reserved."""

    def attach_inbox(self, position: int, rows: Sequence[int]) -> None:
        """Has these rows of the inbox deleted together with the append of the frame that contains `position`."""
        self._inbox.extend((position, row) for row in rows)

    def write(self, body: bytes, count: int, digest: int, now_ms: int | None = None) -> int:
        """Makes one frame durable under this epoch and returns the new end position; any failure is final."""
        self._refuse_if_ended()
        assert body, "a frame has a body"
        assert count > 0, "a frame holds at least one event"
        frame = seal(
            body=body,
            first_position=self._end_position + 1,
            count=count,
            epoch=self.epoch,
            digest=digest,
            digest_version=self._config.digest_version,
            link=self._end_checksum,
        )
        try:
            self._write(frame, now_ms or 0)
        except JournalFailedError as error:
            self._failure = error
            raise
        except DatabaseRefusedError as error:
            self._failure = JournalFailedError(f"the database refused a frame: {error.message}")
            raise self._failure from error
        return self._end_position

    def _write(self, frame: StoredFrame, now_ms: int) -> None:
        if self._is_segment_full(now_ms):
            segments = self._durable.open_segment(frame.first_position, self.epoch, now_ms)
            with self._lock:
                self._segments = tuple(segments)
        self._durable.append(frame, [row for position, row in self._inbox if position <= frame.last_position])
        while self._inbox and self._inbox[0][0] <= frame.last_position:
            self._inbox.popleft()
        self._end_position, self._end_checksum = frame.last_position, frame.checksum
        with self._lock:
            *sealed, active = self._segments
            size = active.bytes + FRAME_OVERHEAD + len(frame.body)
            self._segments = (*sealed, replace(active, last_position=frame.last_position, bytes=size))

    def _is_segment_full(self, now_ms: int) -> bool:
        if not self._segments:
            return True
        active = self._segments[-1]
        is_old = now_ms - active.created_ms >= self._segment_ms
        return active.last_position >= active.first_position and (is_old or active.bytes >= self._config.segment_bytes)

    # -- segments

    def segments(self) -> list[SegmentInfo]:
        """Returns the segments, oldest first, without asking the database."""
        self._refuse_if_ended()
        return list(self._segments)

    def remove_segments(self, before: int) -> list[str]:
        """Removes the sealed segments that end at or before `before`; none if the database cannot be reached."""
        self._refuse_if_ended()
        names = [info.name for info in self._segments if info.is_sealed and info.last_position <= before]
        if not names:
            return []
        gone = self._removed(names)
        with self._lock:
            self._segments = tuple(info for info in self._segments if info.name not in gone)
        return gone

    def _removed(self, names: list[str]) -> list[str]:
        """Removes segments and returns those that are gone: pinned ones stay, and an outcome may be unknown."""
        housekeeper = self._storage.housekeeper
        try:
            if housekeeper.remove_segments(names, self.epoch) is Append.FENCED:
                raise LeadershipLostError("another leader looks after the segments of the shard")
            kept = {info.name for info in housekeeper.segments()}
        except DatabaseLostError:
            return []
        return [name for name in names if name not in kept]

    # -- the end

    def close(self) -> None:
        """Closes the connections."""
        if not self._is_closed:
            self._is_closed = True
            self._storage.writer.close()
            self._storage.housekeeper.close()

    def _refuse_if_ended(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._is_closed:
            raise JournalClosedError("the journal is closed")


def read_frames(reader: ShardReader, chain: FrameChain, end: int) -> Iterator[Frame]:
    """Yields the verified frames from the end of the chain up to position `end`."""
    while chain.position < end:
        stored = reader.frames(chain.position, _REPLAY_BYTES)
        if not stored or stored[0].first_position > chain.position + 1:
            raise PositionRemovedError(f"position {chain.position + 1} is no longer kept")
        for frame in stored:
            yield chain.check(frame)
