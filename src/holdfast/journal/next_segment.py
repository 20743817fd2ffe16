"""The file of the next segment: created and allocated before it is needed.

So a roll needs no descriptor and usually no space. The file has a temporary name until its header is durable. When
space is short the file is removed, and its space is used for frames.

Threads: the writer's thread calls `prepare` and `take`, the loop's thread calls `give_up`; one lock protects the file.
"""

import threading

from holdfast.journal.disk import Disk, File
from holdfast.journal.segment import HEADER_BYTES, SegmentHeader, finish_segment
from holdfast.journal.whole_write import TEMPORARY_SUFFIX, is_passing, remove_if_present

NEXT_NAME = "next.seg" + TEMPORARY_SUFFIX


class NextSegment:
    """At most one preallocated file."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._file: File | None = None
        self._lock = threading.Lock()

    def prepare(self, room: int) -> bool:
        """Create the file with `room` bytes for frames; False if there is no space or no descriptor for it now."""
        with self._lock:
            if self._file is not None:
                return True
            try:
                remove_if_present(self._disk, NEXT_NAME)
                self._file = self._disk.create(NEXT_NAME)
                self._file.reserve(HEADER_BYTES + room)
            except OSError as error:
                if not is_passing(error):
                    raise
                self._remove()
                return False
            return True

    def take(self, header: SegmentHeader, size: int) -> File | None:
        """Make the file the segment of this header, as `create_segment` would; None if there is no file."""
        with self._lock:
            file, self._file = self._file, None
        return None if file is None else finish_segment(self._disk, file, NEXT_NAME, header, size)

    def give_up(self) -> bool:
        """Remove the file to free its space; return whether there was one."""
        with self._lock:
            return self._remove()

    def close(self) -> None:
        """Close the file; the next start removes it."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _remove(self) -> bool:
        if self._file is None:
            return False
        self._file.close()
        self._file = None
        remove_if_present(self._disk, NEXT_NAME)
        return True
