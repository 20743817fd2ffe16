"""A disk in memory that loses, tears and refuses writes as a real one may, from one random source.

Invariants:
- Synced data is never lost. Data that was not synced is lost, kept, or torn at a crash: each 512-byte sector separately
  has its old or its new contents. The same holds for each size, creation, rename and removal.
- After a crash point has fired, every call raises until `crash` is called: no clean-up code of the program under test
  reaches a disk without power.
- Equal seeds and equal calls give equal bytes.

A file keeps its current contents, and the old contents of the sectors written since the last sync. A sync discards the
old contents, a crash restores some of them. So the cost of both depends on the data written, not on the size of the
file.
"""

import errno
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

from holdfast.journal.disk import File, LockFile
from holdfast.journal.errors import DirectoryLockedError

SECTOR_BYTES = 512
_ENDLESS_BYTES = 1 << 50
CrashMoment = Literal["before", "middle", "after"]


class SimulatedCrash(BaseException):
    """A power cut; not an Exception, so that only the test catches it."""


@dataclass(slots=True)
class DiskFaults:
    """The next faults, or permanent ones; all can be set at any time."""

    # Each of these fails one call, then resets itself.
    fail_next_sync: bool = False
    fail_next_sync_dir: bool = False
    fail_next_write: bool = False
    fail_next_read: bool = False
    # Percentage of writes that are cut short, at a random length.
    short_write_percent: int = 0
    # The remaining free space in bytes; None is no limit.
    free_bytes: int | None = None
    # Whether opening and creating files fails for lack of descriptors.
    no_descriptors: bool = False
    # The number of the operation at which the power goes, and the moment within it.
    crash_at_operation: int | None = None
    crash_moment: CrashMoment = "before"


@dataclass(slots=True)
class _Inode:
    """One file: `data` holds the bytes ever written; the rest, up to `size`, is zeros."""

    data: bytearray = field(default_factory=bytearray)
    size: int = 0
    synced_size: int = 0
    # Sector number to contents at the last sync, for sectors written since.
    unsynced: dict[int, bytes] = field(default_factory=dict)
    # The same for sectors whose sync failed: clean for the kernel, but never durable.
    dropped: dict[int, bytes] = field(default_factory=dict)
    # Sectors that a truncation since the last sync cut off.
    cut: set[int] = field(default_factory=set)

    def read(self, offset: int, size: int) -> bytes:
        end = min(offset + size, self.size)
        return bytes(self.data[offset:end]).ljust(max(0, end - offset), b"\0")

    def remember(self, first: int, last: int) -> None:
        """Saves the contents of sectors `first` to `last`, unless saved since the last sync."""
        for sector in range(first, last + 1):
            if sector not in self.unsynced:
                start = sector * SECTOR_BYTES
                old = self.dropped.pop(sector, None)
                self.unsynced[sector] = bytes(self.data[start : start + SECTOR_BYTES]) if old is None else old

    def write(self, offset: int, data: bytes) -> None:
        end = offset + len(data)
        self.remember(offset // SECTOR_BYTES, (end - 1) // SECTOR_BYTES)
        if offset > len(self.data):
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset:end] = data
        self.size = max(self.size, end)

    def truncate(self, size: int) -> None:
        if size < len(self.data):
            sectors = range(size // SECTOR_BYTES, (len(self.data) - 1) // SECTOR_BYTES + 1)
            self.remember(sectors[0], sectors[-1])
            self.cut.update(sectors)
            del self.data[size:]
        self.size = size

    def sync(self) -> None:
        self.unsynced.clear()
        self.cut.clear()
        self.synced_size = self.size

    def fail_sync(self) -> None:
        self.dropped.update(self.unsynced)
        self.unsynced.clear()

    def crash(self, rng: random.Random) -> None:
        """Takes on the state after a power cut."""
        is_size_kept = rng.random() < 0.5  # noqa: PLR2004 - a coin
        for sector in sorted(self.unsynced):
            if (sector in self.cut and not is_size_kept) or rng.random() < 0.5:  # noqa: PLR2004
                self._put_back(sector, self.unsynced[sector])
        for sector, old in self.dropped.items():
            self._put_back(sector, old)
        size = self.size if is_size_kept else self.synced_size
        del self.data[size:]
        self.size = self.synced_size = size
        self.unsynced.clear()
        self.dropped.clear()
        self.cut.clear()

    def _put_back(self, sector: int, old: bytes) -> None:
        start = sector * SECTOR_BYTES
        if start > len(self.data):
            self.data.extend(bytes(start - len(self.data)))
        self.data[start : start + SECTOR_BYTES] = old.ljust(SECTOR_BYTES, b"\0")


class SimFile:
    """An open file; unusable after a crash."""

    __slots__ = ("_disk", "_inode", "_life")

    def __init__(self, disk: "SimDisk", inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode
        self._life = disk.life

    def write_at(self, offset: int, data: bytes) -> int:
        disk, faults = self._disk, self._disk.faults
        disk.begin(self._life)
        if faults.fail_next_write:
            faults.fail_next_write = False
            raise self._disk.failure(errno.EIO)
        size = disk.writable(self._inode, offset, len(data))
        if disk.is_crashing("middle"):
            self._inode.write(offset, data[: disk.rng.randrange(size + 1)])
            disk.cut_power()
        self._inode.write(offset, data if size == len(data) else data[:size])
        disk.end()
        return size

    def read_at(self, offset: int, size: int) -> bytes:
        self._disk.begin(self._life)
        if self._disk.faults.fail_next_read:
            self._disk.faults.fail_next_read = False
            raise self._disk.failure(errno.EIO)
        self._disk.end()
        return self._inode.read(offset, size)

    def sync(self) -> None:
        self._disk.begin(self._life)
        if self._disk.faults.fail_next_sync:
            self._disk.faults.fail_next_sync = False
            self._inode.fail_sync()
            raise self._disk.failure(errno.EIO)
        self._inode.sync()
        self._disk.end()

    def reserve(self, size: int) -> None:
        self._disk.begin(self._life)
        grown = size - self._inode.size
        if grown > 0:
            if self._disk.is_short_of(grown):
                raise self._disk.failure(errno.ENOSPC)
            self._inode.size = size
        self._disk.end()

    def truncate(self, size: int) -> None:
        self._disk.begin(self._life)
        self._disk.give_back(self._inode.size - size)
        self._inode.truncate(size)
        self._disk.end()

    def size(self) -> int:
        return self._inode.size

    def close(self) -> None:
        """Does nothing: closing makes nothing durable."""


class SimLockFile:
    """A held file of a simulated disk."""

    def __init__(self, disk: "SimDisk", name: str) -> None:
        self._disk = disk
        self._name = name

    def release(self) -> None:
        self._disk.let_go(self._name)


@dataclass(frozen=True, slots=True)
class _NameChange:
    """A change of the directory that is not durable yet: a removed name, an added name."""

    gone: str | None
    come: str | None
    inode: _Inode | None


class SimDisk:
    """One directory; `faults` are its faults, `operations` is the number of calls so far."""

    def __init__(self, rng: random.Random, files: Mapping[str, bytes] | None = None) -> None:
        self.rng = rng
        self.faults = DiskFaults()
        self.operations = 0
        self.life = 0
        self._is_off = False
        self._is_locked = False
        self._held: set[str] = set()
        self._names = {name: _durable(data) for name, data in (files or {}).items()}
        self._synced_names = dict(self._names)
        self._changes: list[_NameChange] = []

    # Calls of tests.

    def crash(self) -> Self:
        """Cuts the power and restores it: synced data stays, and a random part of the rest."""
        used = sum(inode.size for inode in self._names.values())
        for change in self._changes:
            if self.rng.random() < 0.5:  # noqa: PLR2004 - a coin
                _apply(change, self._synced_names)
        self._names = dict(self._synced_names)
        for name in sorted(self._names):
            self._names[name].crash(self.rng)
        self._changes.clear()
        self.give_back(used - sum(inode.size for inode in self._names.values()))
        self._restart()
        return self

    def kill(self) -> Self:
        """Ends the process but not the machine: written data stays, locks and holds go."""
        self._restart()
        return self

    def files(self) -> dict[str, bytes]:
        """Returns the current contents of every file."""
        return {name: inode.read(0, inode.size) for name, inode in sorted(self._names.items())}

    def flip_bit(self, name: str, bit: int) -> None:
        """Flips one bit of a file, durably; bit 0 is the lowest of the first byte."""
        inode = self._names[name]
        at = bit // 8
        if at >= len(inode.data):
            inode.data.extend(bytes(at + 1 - len(inode.data)))
        inode.data[at] ^= 1 << bit % 8

    # The port `Disk`.

    def create(self, name: str) -> File:
        self.begin(self.life)
        self._refuse_without_descriptors()
        if name in self._names:
            raise self.failure(errno.EEXIST)
        inode = _Inode()
        self._change(_NameChange(None, name, inode))
        self.end()
        return SimFile(self, inode)

    def open(self, name: str) -> File:
        self.begin(self.life)
        self._refuse_without_descriptors()
        inode = self._find(name)
        self.end()
        return SimFile(self, inode)

    def names(self) -> list[str]:
        self.begin(self.life)
        self.end()
        return sorted(self._names)

    def rename(self, old: str, new: str) -> None:
        self.begin(self.life)
        inode = self._find(old)
        replaced = self._names.get(new)
        self._change(_NameChange(old, new, inode))
        self.give_back(replaced.size if replaced else 0)
        self.end()

    def remove(self, name: str) -> None:
        self.begin(self.life)
        inode = self._find(name)
        self._change(_NameChange(name, None, None))
        self.give_back(inode.size)
        self.end()

    def free_bytes(self) -> int:
        return _ENDLESS_BYTES if self.faults.free_bytes is None else self.faults.free_bytes

    def sync_dir(self) -> None:
        self.begin(self.life)
        if self.faults.fail_next_sync_dir:
            self.faults.fail_next_sync_dir = False
            raise self.failure(errno.EIO)
        self._synced_names = dict(self._names)
        self._changes.clear()
        self.end()

    def lock(self) -> None:
        if self._is_locked:
            raise DirectoryLockedError("the simulated disk", None)
        self._is_locked = True

    def unlock(self) -> None:
        self._is_locked = False

    def hold(self, name: str) -> LockFile:
        if name not in self._names:
            self.create(name)
        self._held.add(name)
        return SimLockFile(self, name)

    def reap(self, name: str) -> bool:
        if name in self._held:
            return False
        if name in self._names:
            self.remove(name)
        return True

    # Calls of files and holds.

    def begin(self, life: int) -> None:
        """Counts an operation, and cuts the power if it is the chosen one."""
        if self._is_off or life != self.life:
            raise SimulatedCrash
        self.operations += 1
        if self.is_crashing("before"):
            self.cut_power()

    def end(self) -> None:
        """Cuts the power after an operation; an operation without a middle is complete then."""
        if self.is_crashing("after") or self.is_crashing("middle"):
            self.cut_power()

    def failure(self, number: int) -> OSError:
        """Ends an operation that fails, and returns its error."""
        self.end()
        return OSError(number, os.strerror(number))

    def is_crashing(self, moment: CrashMoment) -> bool:
        return self.operations == self.faults.crash_at_operation and self.faults.crash_moment == moment

    def cut_power(self) -> None:
        self._is_off = True
        raise SimulatedCrash

    def let_go(self, name: str) -> None:
        if name in self._held:
            self._held.discard(name)
            self.remove(name)

    def is_short_of(self, size: int) -> bool:
        """Takes `size` bytes of the free space; returns True if there is not enough."""
        free = self.faults.free_bytes
        if free is None or size <= 0:
            return False
        if size > free:
            return True
        self.faults.free_bytes = free - size
        return False

    def give_back(self, size: int) -> None:
        if self.faults.free_bytes is not None:
            self.faults.free_bytes += size

    def writable(self, inode: _Inode, offset: int, size: int) -> int:
        """Returns how many bytes of a write are carried out; a short write comes before ENOSPC, as on a real disk."""
        if self.faults.short_write_percent and self.rng.randrange(100) < self.faults.short_write_percent:
            size = self.rng.randint(1, size)
        if self.is_short_of(offset + size - inode.size):
            size = inode.size + (self.faults.free_bytes or 0) - offset
            if size <= 0:
                raise self.failure(errno.ENOSPC)
            self.faults.free_bytes = 0
        return size

    def _refuse_without_descriptors(self) -> None:
        if self.faults.no_descriptors:
            raise self.failure(errno.EMFILE)

    def _find(self, name: str) -> _Inode:
        if name not in self._names:
            raise self.failure(errno.ENOENT)
        return self._names[name]

    def _change(self, change: _NameChange) -> None:
        _apply(change, self._names)
        self._changes.append(change)

    def _restart(self) -> None:
        self.life += 1
        self._is_off = self._is_locked = False
        self._held.clear()
        self.faults.crash_at_operation = None


def _apply(change: _NameChange, names: dict[str, _Inode]) -> None:
    if change.gone is not None:
        names.pop(change.gone, None)
    if change.come is not None and change.inode is not None:
        names[change.come] = change.inode


def _durable(data: bytes) -> _Inode:
    return _Inode(data=bytearray(data), size=len(data), synced_size=len(data))
