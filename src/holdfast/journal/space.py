"""Accounting of the space for frames, in bytes of the segment being written.

    0 ........ end ................ end + granted ......... allocated
    | durable  | granted to frames  | free                |

- `grant(size, spare)` moves `size` from free to granted if `spare` stays free; if necessary it extends the file.
- `extend_ahead()` extends the file by an extent before it is needed, so that `grant` seldom waits for the disk.
- `take(size)` uses space for one frame: from the granted bytes, and from the free ones if more is needed.
- `give_back(size)` moves from granted to free.
- `move(file, ...)` switches to a new segment with at least as much space, including grants.

Invariant: end + granted <= allocated, and every byte below `allocated` is allocated on the disk.

Threads: the loop's thread grants while the writer's thread takes, moves and extends ahead. `_lock` protects the
numbers and is never held during a call to the disk. `_extending` is held during `reserve` of the file, which takes as
long as a stall of the disk, and is acquired before `_lock`. So the loop waits for the disk only if it needs more than
what was extended ahead while the disk stalls.
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
        #: The largest `spare` of a grant in this segment: the next grant may want it again.
        self._spare = 0
        #: `extend_ahead` found no space, and tries again from this end on.
        self._retry_at = 0
        self._lock = threading.Lock()
        self._extending = threading.Lock()

    @property
    def end(self) -> int:
        return self._end

    @property
    def granted(self) -> int:
        return self._granted

    def grant(self, size: int, spare: int) -> bool:
        """Grant `size` bytes if `spare` more stay free; False means that nothing has changed."""
        assert size >= 0, "a grant is not negative"
        self._spare = max(self._spare, spare)
        while True:
            with self._lock:
                file, wanted = self._file, self._end + self._granted + size + spare
                if wanted <= self._allocated:
                    self._granted += size
                    return True
            if not self._extend(file, self._whole_extents(wanted), wanted):
                return False

    def give_back(self, size: int) -> None:
        with self._lock:
            assert 0 <= size <= self._granted, f"expected at most {self._granted} bytes given back, got {size}"
            self._granted -= size

    def take(self, size: int) -> bool:
        """Use space for one frame and move `end` past it; False if it was not granted and does not fit."""
        while True:
            with self._lock:
                unpromised = max(0, size - self._granted)
                file, wanted = self._file, self._end + self._granted + unpromised
                if not unpromised or wanted <= self._allocated:
                    self._granted -= size - unpromised
                    self._end += size
                    return True
            if not self._extend(file, self._whole_extents(wanted), wanted):
                return False

    def extend_ahead(self) -> None:
        """Keep half an extent free beyond grants and spare bytes; without space, try again some frames later."""
        ahead = self._extent_bytes // 2
        with self._lock:
            file, wanted = self._file, self._end + self._granted + self._spare + ahead
            if wanted <= self._allocated or self._end < self._retry_at:
                return
        if not self._extend(file, self._whole_extents(wanted + ahead)):
            self._retry_at = self._end + self._extent_bytes // 8

    def room_wanted(self) -> tuple[int, int]:
        """Return the desired and the required space of a new segment, in bytes."""
        with self._lock:
            least = self._allocated - self._end
            return max(least, self._granted + self._extent_bytes), least

    def move(self, file: File, *, end: int, allocated: int) -> bool:
        """Switch to a new file with at least the space of the old one; False if that is impossible."""
        while True:
            with self._extending, self._lock:
                wanted = end + self._allocated - self._end
                if wanted <= allocated:
                    self._file, self._end, self._allocated = file, end, allocated
                    self._spare = self._retry_at = 0
                    return True
            # More was granted since the new file was created.
            if not _extended(file, wanted):
                return False
            allocated = wanted

    def _extend(self, file: File, *targets: int) -> bool:
        """Allocate the file up to the first target for which there is space; the caller looks again."""
        with self._extending:
            if file is not self._file:
                return True  # a roll was faster
            allocated = self._allocated
            for target in targets:
                # Another thread may have extended the file meanwhile.
                if target <= allocated or _extended(file, target):
                    with self._lock:
                        self._allocated = max(target, allocated)
                    return True
        return False

    def _whole_extents(self, size: int) -> int:
        return -(-size // self._extent_bytes) * self._extent_bytes


def _extended(file: File, size: int) -> bool:
    try:
        file.reserve(size)
    except OSError as error:
        if not is_no_space(error):
            raise
        return False
    return True
