"""The file layer under the journal, as ports: one flat directory, and files in it.

All disk access of the journal goes through these two ports, so that tests can inject errors, torn writes and lost
writes. Failures are OSErrors.
"""

from typing import Protocol


class File(Protocol):
    """One open file."""

    def write_at(self, offset: int, data: bytes) -> int:
        """Write some of `data` and return the number of bytes; on failure any part of it may have been written."""
        ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Return `size` bytes, fewer only at the end of the file."""
        ...

    def sync(self) -> None:
        """Make contents and size durable; after a failure they may never become durable, even if sync is repeated."""
        ...

    def reserve(self, size: int) -> None:
        """Extend the file to at least `size` bytes with zeros whose space is allocated.

        On failure (ENOSPC) the file is unchanged. Bytes below the present size are never written, so another
        thread may be writing there.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        ...

    def size(self) -> int:
        """Return the size of the file in bytes, including reserved ones."""
        ...

    def close(self) -> None:
        """Close; calling it twice is harmless."""
        ...


class LockFile(Protocol):
    """A lock file that is released when its process ends."""

    def release(self) -> None:
        """Release the lock and remove its file; calling it twice is harmless."""
        ...


class Disk(Protocol):
    """One directory. Names have no separators. Changes of names are durable after `sync_dir`."""

    def create(self, name: str) -> File:
        """Create a file that must not exist, readable by its owner only."""
        ...

    def open(self, name: str) -> File:
        """Open a file that must exist, for reading and writing."""
        ...

    def names(self) -> list[str]:
        """Return the sorted names of all files except the lock."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file, atomically replacing a file of that name; on failure both are unchanged."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file that must exist."""
        ...

    def free_bytes(self) -> int:
        """Return the free space for this user in bytes."""
        ...

    def sync_dir(self) -> None:
        """Make all creations, renames and removals so far durable."""
        ...

    def lock(self) -> None:
        """Lock the directory for this process, or raise DirectoryLockedError at once."""
        ...

    def unlock(self) -> None:
        """Unlock the directory; harmless when it is not locked."""
        ...

    def hold(self, name: str) -> LockFile:
        """Create the file `name` and hold a lock on it until released, or until this process ends."""
        ...

    def reap(self, name: str) -> bool:
        """Remove a file that `hold` created if no process holds it any more; return whether it is gone."""
        ...
