"""The file of the segment after the one being written: created and allocated before it is needed.

So a roll needs no descriptor and, as a rule, no space. The file has a temporary name until its header is durable. Where
room is short it is given up: frames matter more than the next file.

Threads: the writer's thread prepares and takes, the loop's gives up; one lock keeps them apart.
"""

import threading

from holdfast.journal.disk import Disk, File
from holdfast.journal.segment import HEADER_BYTES, SegmentHeader, finish_segment
from holdfast.journal.whole_write import TEMPORARY_SUFFIX, is_passing, remove_if_present

NEXT_NAME = "next.seg" + TEMPORARY_SUFFIX


class NextSegment:
    """At most one file ahead."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._file: File | None = None
        self._lock = threading.Lock()

    def prepare(self, room: int) -> bool:
        """Create the file with so much room for frames; False if there is no space or no descriptor for it now."""
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
        """Make the file the segment of this header, as `create_segment` would; None if there is no file ahead."""
        with self._lock:
            file, self._file = self._file, None
        return None if file is None else finish_segment(self._disk, file, NEXT_NAME, header, size)

    def give_up(self) -> bool:
        """Remove the file, so that its room can be used; says whether there was one."""
        with self._lock:
            return self._remove()

    def close(self) -> None:
        """Close the file and leave it to the next start to remove it."""
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
