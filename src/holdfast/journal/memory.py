"""A journal in memory with the behaviour of the one on disk, for tests and temporary queues.

Invariant: positions, grants and errors are those that FileJournal would return; only a restart makes a difference.
"""

import threading
import zlib
from collections.abc import Iterator

from holdfast.journal.errors import (
    JournalClosedError,
    JournalDamagedError,
    JournalFullError,
    PositionRemovedError,
)
from holdfast.journal.frame import FRAME_OVERHEAD
from holdfast.journal.port import Frame, SegmentInfo
from holdfast.journal.version import DIGEST_VERSION

_NAME = "memory"


class MemoryJournal:
    """Frames in a list. `bytes_max` limits frames and grants together, as the size of a disk would.

    Without `keeps_frames` nothing can be replayed, and the memory of a long-running server does not grow.
    """

    def __init__(
        self, *, cluster_id: bytes = bytes(16), bytes_max: int | None = None, keeps_frames: bool = True
    ) -> None:
        self._cluster_id = cluster_id
        self._bytes_max = bytes_max
        self._keeps_frames = keeps_frames
        self._end_checksum = 0
        self._frames: list[Frame] = []
        self._first_position = 1
        self._end_position = 0
        self._bytes = 0
        self._granted = 0
        self._is_closed = False
        self._lock = threading.Lock()

    @property
    def cluster_id(self) -> bytes:
        return self._cluster_id

    @property
    def epoch(self) -> int:
        return 1

    @property
    def first_position(self) -> int:
        return self._first_position

    @property
    def end_position(self) -> int:
        return self._end_position

    @property
    def end_checksum(self) -> int:
        return self._end_checksum

    def replay(self, after: int = 0, *, link: int | None = None) -> Iterator[Frame]:
        self._refuse_if_closed()
        if after + 1 < self._first_position:
            raise PositionRemovedError(f"positions up to {self._first_position - 1} are no longer kept")
        before = next((frame for frame in self._frames if frame.last_position == after), None)
        if after > self._end_position or (link is not None and before and before.checksum != link):
            raise JournalDamagedError(_NAME, 0, after, "it does not contain the requested frame")
        return iter([frame for frame in self._frames if frame.last_position > after])

    def reserve(self, size: int, *, spare: int = 0) -> bool:
        self._refuse_if_closed()
        with self._lock:
            if not self._has_room(size + spare):
                return False
            self._granted += size
            return True

    def release(self, size: int) -> None:
        with self._lock:
            assert 0 <= size <= self._granted, f"expected at most {self._granted} bytes given back, got {size}"
            self._granted -= size

    def write(self, body: bytes, count: int, digest: int, now_ms: int | None = None) -> int:
        self._refuse_if_closed()
        assert body, "a frame has a body"
        assert count > 0, "a frame holds at least one event"
        size = FRAME_OVERHEAD + len(body)
        with self._lock:
            granted = min(size, self._granted)
            if not self._has_room(size - granted):
                raise JournalFullError(f"no space for a frame of {size} bytes", reason="JOURNAL_FULL")
            self._granted -= granted
            self._bytes += size if self._keeps_frames else 0
        self._end_checksum = zlib.crc32(body, self._end_checksum)
        if self._keeps_frames:
            self._frames.append(Frame(self._end_position + 1, count, digest, body, self._end_checksum, DIGEST_VERSION))
        else:
            self._first_position = self._end_position + count + 1
        self._end_position += count
        return self._end_position

    def segments(self) -> list[SegmentInfo]:
        """Return one segment, which is never sealed."""
        self._refuse_if_closed()
        return [
            SegmentInfo(
                name=_NAME,
                first_position=self._first_position,
                last_position=self._end_position,
                epoch=1,
                bytes=self._bytes,
                is_sealed=False,
            )
        ]

    def remove_segments(self, before: int) -> list[str]:
        """Remove the frames that end at or before `before`, to free memory."""
        self._refuse_if_closed()
        with self._lock:
            gone = [frame for frame in self._frames[:-1] if frame.last_position <= before]
            self._frames = self._frames[len(gone) :]
            self._bytes -= sum(FRAME_OVERHEAD + len(frame.body) for frame in gone)
            self._first_position = self._frames[0].first_position if self._frames else 1
        return [_NAME] if gone else []

    def close(self) -> None:
        self._is_closed = True

    def _has_room(self, size: int) -> bool:
        return self._bytes_max is None or self._bytes + self._granted + size <= self._bytes_max

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise JournalClosedError("the journal is closed")
