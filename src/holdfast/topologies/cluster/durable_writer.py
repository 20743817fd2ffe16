"""Repeats the calls of a `ShardWriter` until their outcome is known, or the lease has ended.

Invariants:
- A method returns only if its change is durable: written, and replicated if the database replicates.
- After a lost connection, nothing is appended before the frame at that position has been read back.
- A frame that was read back, or that may not be replicated, counts only once `confirm` is written after it, on the same
  connection: a lost connection may mean another primary, so everything begins again with reading back.
- LeadershipLostError is final: another leader may have written, or the outcome is unknown at the end of the lease.
"""

from collections.abc import Callable, Sequence

from holdfast.journal.errors import LeadershipLostError
from holdfast.journal.port import SegmentInfo
from holdfast.topologies.cluster.lease_deadline import LeaseDeadline
from holdfast.topologies.cluster.ports import Append, DatabaseLostError, FrameKey, ShardWriter, StoredFrame

#: Blocks the calling thread for this many milliseconds.
Wait = Callable[[int], None]

_RETRY_MS = 20


class DurableWriter:
    """The writes of the leader of one shard."""

    def __init__(self, writer: ShardWriter, lease: LeaseDeadline, wait: Wait) -> None:
        self._writer = writer
        self._lease = lease
        self._wait = wait

    def append(self, frame: StoredFrame, inbox: Sequence[int] = ()) -> None:
        """Appends a frame and deletes these rows of the inbox, both or neither."""
        if not _has_answer(lambda: self._insert(frame, inbox)):
            self._repeat(lambda: self._resolve(frame, inbox))

    def segments(self) -> list[SegmentInfo]:
        """Returns the segments."""
        segments = list[SegmentInfo]()

        def read() -> None:
            segments[:] = self._writer.segments()

        if not _has_answer(read):
            self._repeat(read)
        return segments

    def open_segment(self, first_position: int, epoch: int, created_ms: int) -> list[SegmentInfo]:
        """Begins a segment and returns all segments; repeating this is harmless."""
        segments = list[SegmentInfo]()

        def open_it() -> None:
            outcome = self._writer.open_segment(first_position, epoch, created_ms)
            self._accept(outcome, epoch)
            segments[:] = self._writer.segments()

        if not _has_answer(open_it):
            self._repeat(open_it)
        return segments

    def _resolve(self, frame: StoredFrame, inbox: Sequence[int]) -> None:
        """Handles an unknown outcome: the frame is there, or it is appended again, or another leader was faster."""
        found = self._writer.find(frame.first_position)
        if found is None:
            self._insert(frame, inbox)
        elif found == key_of(frame):
            self._confirm(frame.epoch)
        else:
            raise _lost(f"epoch {found.epoch} has written position {frame.first_position}")

    def _insert(self, frame: StoredFrame, inbox: Sequence[int]) -> None:
        outcome = self._writer.append(frame, inbox)
        if outcome is not Append.TAKEN:
            self._accept(outcome, frame.epoch)
        elif self._writer.find(frame.first_position) == key_of(frame):
            self._confirm(frame.epoch)  # an earlier attempt has written it
        else:
            raise _lost(f"another frame is at position {frame.first_position}")

    def _accept(self, outcome: Append, epoch: int) -> None:
        """Accepts a change that is written, once it is replicated."""
        if outcome is Append.UNCONFIRMED:
            self._confirm(epoch)
        elif outcome is not Append.WRITTEN:
            raise _lost(f"epoch {epoch} leads no more ({outcome})")

    def _confirm(self, epoch: int) -> None:
        while (outcome := self._writer.confirm(epoch)) is Append.UNCONFIRMED:
            self._pause()
        if outcome is not Append.WRITTEN:
            raise _lost(f"epoch {epoch} leads no more ({outcome})")

    def _repeat(self, call: Callable[[], None]) -> None:
        self._pause()
        while not _has_answer(call):
            self._pause()

    def _pause(self) -> None:
        self._wait(_RETRY_MS)
        if self._lease.has_ended:
            raise _lost("the outcome of a write was unknown when the lease ended")


def key_of(frame: StoredFrame) -> FrameKey:
    """Returns what distinguishes a frame from another one at its position."""
    return FrameKey(frame.epoch, frame.checksum)


def _has_answer(call: Callable[[], None]) -> bool:
    """Returns whether the database has answered; False if the outcome of the call is unknown."""
    try:
        call()
    except DatabaseLostError:
        return False
    return True


def _lost(why: str) -> LeadershipLostError:
    return LeadershipLostError(f"this node does not lead the shard any more: {why}", reason="LEADERSHIP_LOST")
