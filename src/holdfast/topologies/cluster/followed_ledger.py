"""The state of a shard, kept equal to its frames: the blocking part of a follower.

Invariants:
- A frame is applied only if its checksum, its position, its epoch and its link are right, and afterwards the digest of
  the state equals the digest in the frame.
- A frame that was read may vanish: it was visible before a standby had it, and the standby became the primary. The
  state is then dropped and built again; a frame that does not fit for any other reason is an error.
- After `take_over` the state contains every frame of the shard, provided that no other epoch can write.
"""

from msgspec import structs

from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.journal.archive import SnapshotStore
from holdfast.journal.errors import JournalDamagedError, JournalFailedError, PositionRemovedError
from holdfast.ledger.recovery import apply_frame, restore
from holdfast.topologies.cluster.frame_chain import FrameChain
from holdfast.topologies.cluster.ports import DatabaseLostError, ShardReader, StoredFrame

#: The bodies of frames that are read and applied at once.
READ_BYTES = 256 << 10


class FollowedLedger:
    """The ledger of one shard, and the connection from which it is advanced. One thread at a time calls it."""

    def __init__(
        self,
        shard: int,
        reader: ShardReader,
        snapshots: SnapshotStore,
        config: LedgerConfig,
        *,
        read_bytes: int = READ_BYTES,
    ) -> None:
        """Reads nothing yet."""
        self._shard = shard
        self._reader = reader
        self._snapshots = snapshots
        self._config = config
        self._read_bytes = read_bytes
        self._chain = FrameChain(shard)
        #: None before the first read, and after the state was dropped.
        self._ledger: Ledger | None = None
        #: The last frame that was applied, without its body; None if there was none since the snapshot.
        self._last: StoredFrame | None = None
        #: How often the state was dropped because a frame had vanished or was removed.
        self.rebuilt = 0

    @property
    def position(self) -> int:
        """The last position that was applied. Any thread may read it."""
        return self._chain.position

    @property
    def link(self) -> int:
        """The checksum of the frame that ends there; 0 if there is none."""
        return self._chain.link or 0

    @property
    def ledger(self) -> Ledger:
        """The state at `position`."""
        assert self._ledger is not None, "the state was read before"
        return self._ledger

    def advance(self) -> int:
        """Applies the next frames, and returns their number; 0 at the end."""
        if self._ledger is None:
            self._restore()
        stored = self._next_frames()
        for frame in stored:
            self._apply(frame)
        return len(stored)

    def take_over(self) -> int:
        """Applies all frames and returns the last position; called when this node's takeover is committed."""
        while self.advance() or not self._is_at_the_end():
            pass
        self.ledger.state.rehash(DIGEST_VERSION)
        return self.position

    def close(self) -> None:
        """Closes the connection."""
        self._reader.close()

    def _next_frames(self) -> list[StoredFrame]:
        """Reads the next frames; drops the state first if they cannot follow it for a harmless reason."""
        try:
            stored = self._reader.frames(self.position, self._read_bytes)
        except (JournalDamagedError, PositionRemovedError):
            if not self._must_rebuild():
                raise
        else:
            if not stored or self._continues(stored[0]) or not self._must_rebuild():
                return stored
        self._restore()
        return self._next_frames()

    def _continues(self, frame: StoredFrame) -> bool:
        return frame.first_position == self.position + 1 and frame.link == self._chain.link

    def _apply(self, stored: StoredFrame) -> None:
        apply_frame(self.ledger, self._chain.check(stored))
        self._last = structs.replace(stored, body=b"")

    def _is_at_the_end(self) -> bool:
        """Whether the state is that of the newest frame; otherwise it is dropped, because a frame has vanished."""
        if self._reader.end_position() == self.position and self._is_last_kept():
            return True
        if self._reader.end_position() <= self.position:
            self._restore()
        return False

    def _must_rebuild(self) -> bool:
        """Whether the next frame does not follow because frames have vanished, or were removed for their age."""
        return not self._is_last_kept() or self._reader.first_position() > self.position + 1

    def _is_last_kept(self) -> bool:
        """Whether the frame that was applied last is still there; a snapshot contains no frame that could vanish."""
        last = self._last
        if last is None or self._reader.first_position() > last.first_position:
            return True
        found = self._reader.frames(last.first_position - 1, 1)
        return bool(found) and structs.replace(found[0], body=b"") == last

    def _restore(self) -> None:
        """Begins with the newest good snapshot, or with nothing."""
        try:
            restored = restore(self._snapshots, self._config, proves_digest=False)
        except JournalFailedError as error:  # an archive says so if its database is away
            raise DatabaseLostError(error.message) from error
        first = self._reader.first_position()
        self.rebuilt += self._ledger is not None
        self._ledger, self._last = restored.ledger, None
        self._chain = FrameChain(self._shard, self._ledger.position, restored.link or 0)
        if first > self.position + 1:
            problem = "; ".join([f"the frames before position {first} are gone", *restored.warnings])
            raise PositionRemovedError(f"no snapshot of shard {self._shard} reaches position {first - 1}: {problem}")
