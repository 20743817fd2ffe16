"""The file layer under the journal, as ports: one flat directory, and files in it.

Everything the journal does to a disk goes through these two, so that each way in which a disk fails, tears or
loses can be made to happen. Failures are OSErrors.
"""

from typing import Protocol


class File(Protocol):
    """One open file."""

    def write_at(self, offset: int, data: bytes) -> int:
        """Write some of `data` and say how many bytes; on failure any part of it may have been written."""
        ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Return `size` bytes, fewer only at the end of the file."""
        ...

    def sync(self) -> None:
        """Make contents and size durable; after a failure they may never become so, whatever is tried."""
        ...

    def reserve(self, size: int) -> None:
        """Make the file at least `size` bytes, the new ones zeros that cost no space to write later.

        On failure (ENOSPC) the file is as it was. Bytes below the present size are never touched, so another
        thread may be writing there.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        ...

    def size(self) -> int:
        """Return how many bytes the file has, reserved ones included."""
        ...

    def close(self) -> None:
        """Close; calling it twice is harmless."""
        ...


class Hold(Protocol):
    """A claim that ends with the process that holds it."""

    def release(self) -> None:
        """Give the claim up and remove its file; calling it twice is harmless."""
        ...


class Disk(Protocol):
    """One directory. Names are flat: no separators. Changes of names are durable after `sync_dir`."""

    def create(self, name: str) -> File:
        """Create a file that must not exist, readable by its owner only."""
        ...

    def open(self, name: str) -> File:
        """Open a file that must exist, for reading and writing."""
        ...

    def names(self) -> list[str]:
        """Return the sorted names of all files but the lock."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, atomically replacing what had it; on failure both are as they were."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file that must exist."""
        ...

    def free_bytes(self) -> int:
        """Return how many more bytes files of this user may take."""
        ...

    def sync_dir(self) -> None:
        """Make all creations, renames and removals so far durable."""
        ...

    def lock(self) -> None:
        """Claim the directory for this process alone, or raise DirectoryLockedError at once."""
        ...

    def unlock(self) -> None:
        """Give the directory up; harmless when it is not claimed."""
        ...

    def hold(self, name: str) -> Hold:
        """Create the file `name` and hold it until released, or until this process ends."""
        ...

    def reap(self, name: str) -> bool:
        """Remove a file that was made by `hold` if nobody holds it any more, and say whether it is gone."""
        ...
