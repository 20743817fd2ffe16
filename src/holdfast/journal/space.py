"""Room for frames: what is promised, what is taken.

Accounting, all in bytes of the segment being written:

    0 ........ end ................ end + granted ......... allocated
    | durable  | promised to frames | free                |

- `grant(size, spare)` moves `size` from free to promised if `spare` stays free; else it extends the file
  first.
- `take(size)` is one frame's place: it comes out of what is promised, and out of what is free if more is
  needed.
- `give_back(size)` moves from promised to free.
- `move(file, ...)` goes over to a new segment that has at least as much room, promises included.

Invariant: end + granted <= allocated, always, and every byte below `allocated` has its space on the disk.

Threads: the loop's thread grants while the writer's thread takes and moves. One lock guards the numbers and
is never held over a write or a sync, only over `reserve` of the file, which is quick and touches no byte
that is there.
"""

import threading

from holdfast.journal.disk import File
from holdfast.journal.whole_write import is_no_space


class Space:
    """The room in the segment being written."""

    def __init__(self, file: File, *, end: int, allocated: int, extent_bytes: int) -> None:
        self._file = file
        self._end = end
        self._allocated = allocated
        self._granted = 0
        self._extent_bytes = extent_bytes
        self._lock = threading.Lock()

    @property
    def end(self) -> int:
        return self._end

    @property
    def granted(self) -> int:
        return self._granted

    def grant(self, size: int, spare: int) -> bool:
        """Promise `size` bytes, with `spare` more staying free; on False nothing has changed."""
        assert size >= 0, "a grant is not negative"
        with self._lock:
            if not self._has(self._granted + size + spare):
                return False
            self._granted += size
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            assert 0 <= size <= self._granted, f"expected at most {self._granted} bytes given back, got {size}"
            self._granted -= size

    def take(self, size: int) -> bool:
        """Give one frame its place and move `end` past it; False if it was not promised and does not fit."""
        with self._lock:
            unpromised = max(0, size - self._granted)
            if unpromised and not self._has(self._granted + unpromised):
                return False
            self._granted -= size - unpromised
            self._end += size
            return True

    def room_wanted(self) -> tuple[int, int]:
        """Return how many bytes a new segment should have room for, and how many it must."""
        with self._lock:
            least = self._allocated - self._end
            return max(least, self._granted + self._extent_bytes), least

    def move(self, file: File, *, end: int, allocated: int) -> bool:
        """Go over to a new file, if it holds all that the old one has room for; False means stay."""
        with self._lock:
            wanted = end + self._allocated - self._end
            # The loop may have been granted more since the new file was made.
            if wanted > allocated and not _extended(file, wanted):
                return False
            self._file, self._end, self._allocated = file, end, max(allocated, wanted)
            return True

    def _has(self, size: int) -> bool:
        """Make sure that `size` bytes past the end are allocated: in whole extents, or else exactly."""
        wanted = self._end + size
        if wanted <= self._allocated:
            return True
        extents = -(-wanted // self._extent_bytes) * self._extent_bytes
        for target in (extents, wanted):
            if _extended(self._file, target):
                self._allocated = target
                return True
        return False


def _extended(file: File, size: int) -> bool:
    try:
        file.reserve(size)
    except OSError as error:
        if not is_no_space(error):
            raise
        return False
    return True
