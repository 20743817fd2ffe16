"""A disk that stalls on demand: every change waits until the stall is over."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.journal.disk import Disk, File, LockFile

#: A stall ends by itself after this time, so that a program that hangs because of it can report that.
_STALL_S_MAX = 20.0


class Gate:
    """Stalls and releases the disk, from any thread."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self._kind = ""
        #: Set while a call waits.
        self.is_met = threading.Event()
        #: The threads that waited.
        self.waiters: set[int] = set()

    @contextmanager
    def shut(self, on: str = "") -> Iterator[None]:
        """Blocks all changes until the block ends, or only those whose kind begins with `on`."""
        self._kind = on
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def pass_through(self, kind: str) -> None:
        """Waits while the gate is shut for changes of this kind."""
        if not self._open.is_set() and kind.startswith(self._kind):
            self.waiters.add(threading.get_ident())
            self.is_met.set()
            self._open.wait(_STALL_S_MAX)
            self.is_met.clear()


class StallingFile:
    """A file whose changes wait at the gate."""

    def __init__(self, file: File, gate: Gate) -> None:
        self._file = file
        self._gate = gate
        self.read_at = file.read_at
        self.size = file.size
        self.close = file.close

    def write_at(self, offset: int, data: bytes) -> int:
        """Writes some of `data` without waiting, because it only reaches memory."""
        return self._file.write_at(offset, data)

    def sync(self) -> None:
        """Waits, then makes contents and size durable."""
        self._gate.pass_through("sync")
        self._file.sync()

    def reserve(self, size: int) -> None:
        """Waits, then reserves space."""
        self._gate.pass_through("reserve")
        self._file.reserve(size)

    def truncate(self, size: int) -> None:
        """Waits, then truncates the file."""
        self._gate.pass_through("truncate")
        self._file.truncate(size)


class StallingDisk:
    """A directory whose changes wait at the gate."""

    def __init__(self, disk: Disk, gate: Gate) -> None:
        self._disk = disk
        self._gate = gate
        self.names = disk.names
        self.free_bytes = disk.free_bytes
        self.lock = disk.lock
        self.unlock = disk.unlock

    def create(self, name: str) -> File:
        """Waits, then creates a file."""
        self._gate.pass_through("create")
        return StallingFile(self._disk.create(name), self._gate)

    def open(self, name: str) -> File:
        """Opens a file."""
        return StallingFile(self._disk.open(name), self._gate)

    def rename(self, old: str, new: str) -> None:
        """Waits, then renames."""
        self._gate.pass_through(f"rename {new}")
        self._disk.rename(old, new)

    def remove(self, name: str) -> None:
        """Waits, then removes."""
        self._gate.pass_through("remove")
        self._disk.remove(name)

    def sync_dir(self) -> None:
        """Waits, then makes names durable."""
        self._gate.pass_through("sync_dir")
        self._disk.sync_dir()

    def hold(self, name: str) -> LockFile:
        """Waits, then holds a file."""
        self._gate.pass_through("hold")
        return self._disk.hold(name)

    def reap(self, name: str) -> bool:
        """Waits, then removes a file that is not held."""
        self._gate.pass_through("reap")
        return self._disk.reap(name)
