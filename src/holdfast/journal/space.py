"""Accounting of the space for frames, in bytes of the segment being written.

    0 ........ end ................ end + granted ......... allocated
    | durable  | granted to frames  | free                |

- `grant(size, spare)` moves `size` from free to granted if `spare` stays free; if necessary it extends the file.
- `take(size)` uses space for one frame: from the granted bytes, and from the free ones if more is needed.
- `give_back(size)` moves from granted to free.
- `move(file, ...)` switches to a new segment with at least as much space, including grants.

Invariant: end + granted <= allocated, and every byte below `allocated` is allocated on the disk.

Threads: the loop's thread grants while the writer's thread takes and moves. One lock protects the numbers. It is never
held during a write or a sync, only during `reserve` of the file, which is quick and does not change existing bytes.
"""

import threading

from holdfast.journal.disk import File
from holdfast.journal.whole_write import is_no_space


class Space:
    """The space in the segment being written."""

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
        """Grant `size` bytes if `spare` more stay free; False means that nothing has changed."""
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
        """Use space for one frame and move `end` past it; False if it was not granted and does not fit."""
        with self._lock:
            unpromised = max(0, size - self._granted)
            if unpromised and not self._has(self._granted + unpromised):
                return False
            self._granted -= size - unpromised
            self._end += size
            return True

    def room_wanted(self) -> tuple[int, int]:
        """Return the desired and the required space of a new segment, in bytes."""
        with self._lock:
            least = self._allocated - self._end
            return max(least, self._granted + self._extent_bytes), least

    def move(self, file: File, *, end: int, allocated: int) -> bool:
        """Switch to a new file with at least the space of the old one; False if that is impossible."""
        with self._lock:
            wanted = end + self._allocated - self._end
            # More may have been granted since the new file was created.
            if wanted > allocated and not _extended(file, wanted):
                return False
            self._file, self._end, self._allocated = file, end, max(allocated, wanted)
            return True

    def _has(self, size: int) -> bool:
        """Ensure that `size` bytes past the end are allocated: in whole extents if possible, otherwise exactly."""
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
