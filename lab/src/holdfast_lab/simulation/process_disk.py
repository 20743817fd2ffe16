"""The disk as seen by one process beside the coordinator: shared, but its holds end with the process."""

from collections.abc import Callable

from holdfast.journal.disk import File, LockFile
from holdfast_lab.simulation.disk import SimDisk
from holdfast_lab.simulation.violation import Violation


class Killed(BaseException):
    """The process was killed; its exception handlers have no effect."""


class ProcessDisk:
    """The disk for one process; `tick` is called before every operation, and may raise `Killed`."""

    def __init__(self, disk: SimDisk, tick: Callable[[], None]) -> None:
        self._disk = disk
        self.tick = tick
        self._held: list[str] = []

    def end(self) -> None:
        """Ends the process: the kernel releases its holds and leaves its files."""
        for name in self._held:
            self._disk._held.discard(name)  # noqa: SLF001 - done by a kernel

    def create(self, name: str) -> File:
        self.tick()
        return _ProcessFile(self, self._disk.create(name))

    def open(self, name: str) -> File:
        self.tick()
        return _ProcessFile(self, self._disk.open(name))

    def names(self) -> list[str]:
        self.tick()
        return self._disk.names()

    def rename(self, old: str, new: str) -> None:
        self.tick()
        self._disk.rename(old, new)

    def remove(self, name: str) -> None:
        self.tick()
        self._disk.remove(name)

    def free_bytes(self) -> int:
        return self._disk.free_bytes()

    def sync_dir(self) -> None:
        self.tick()
        self._disk.sync_dir()

    def lock(self) -> None:
        raise Violation("the snapshot process locked the directory")

    def unlock(self) -> None:
        raise Violation("the snapshot process unlocked the directory")

    def hold(self, name: str) -> LockFile:
        self.tick()
        self._held.append(name)
        return _ProcessLockFile(self, self._disk.hold(name))

    def reap(self, name: str) -> bool:
        self.tick()
        return self._disk.reap(name)


class _ProcessFile:
    __slots__ = ("_file", "_process")

    def __init__(self, process: ProcessDisk, file: File) -> None:
        self._process = process
        self._file = file

    def write_at(self, offset: int, data: bytes) -> int:
        self._process.tick()
        return self._file.write_at(offset, data)

    def read_at(self, offset: int, size: int) -> bytes:
        self._process.tick()
        return self._file.read_at(offset, size)

    def sync(self) -> None:
        self._process.tick()
        self._file.sync()

    def reserve(self, size: int) -> None:
        self._process.tick()
        self._file.reserve(size)

    def truncate(self, size: int) -> None:
        self._process.tick()
        self._file.truncate(size)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class _ProcessLockFile:
    __slots__ = ("_hold", "_process")

    def __init__(self, process: ProcessDisk, hold: LockFile) -> None:
        self._process = process
        self._hold = hold

    def release(self) -> None:
        self._process.tick()
        self._hold.release()
