"""The real disk: one directory, reached by plain system calls.

Invariants: the directory is 0700 and the files 0600; no descriptor is inherited by a child; the claim on the
directory is an flock, so it ends with the process however that ends. Whoever has that claim holds descriptors in
reserve, for what the journal must open to go on; readers of history do not use them.
"""

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from holdfast.journal.descriptors import DescriptorReserve
from holdfast.journal.disk import File, Hold
from holdfast.journal.errors import DirectoryLockedError
from holdfast.process.private_paths import make_directory, sync_directory

LOCK_NAME = "LOCK"
_ZEROS = bytes(1 << 20)
# How Linux shows the name of a file that has none any more.
_DELETED = " (deleted)"
# What file systems without fallocate answer.
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class OsFile:
    """A file by its descriptor."""

    __slots__ = ("_fd", "_link")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._link = f"/proc/self/fd/{fd}"

    def write_at(self, offset: int, data: bytes) -> int:
        return os.pwrite(self._fd, data, offset)

    def read_at(self, offset: int, size: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        while len(data) < size:
            more = os.pread(self._fd, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def sync(self) -> None:
        os.fdatasync(self._fd)
        if self._is_deleted():
            # Somebody deleted the file under us: it will be gone with this process, whatever was synced.
            raise FileNotFoundError(errno.ENOENT, "the file being written was deleted")

    def _is_deleted(self) -> bool:
        """Asked by name where that is possible: whoever reads a file's times makes its next sync half as slow again.

        Since Linux 6.13, a time that somebody has read must differ after the next write, so that the write changes more
        than data.
        """
        try:
            return os.readlink(self._link).endswith(_DELETED)  # noqa: PTH115 - a Path made for it costs more than the call
        except OSError:
            return not os.fstat(self._fd).st_nlink

    def reserve(self, size: int) -> None:
        present = self.size()
        if size <= present:
            return
        try:
            _extend(self._fd, present, size - present)
        except OSError:
            # Part of the space may have been taken; the bytes below `present` are not touched by this.
            os.ftruncate(self._fd, present)
            raise

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _extend(fd: int, offset: int, size: int) -> None:
    try:
        os.posix_fallocate(fd, offset, size)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        _write_zeros(fd, offset, size)


def _write_zeros(fd: int, offset: int, size: int) -> None:
    """Take the space the slow way, where the file system cannot promise it."""
    end = offset + size
    while offset < end:
        offset += os.pwrite(fd, _ZEROS[: end - offset], offset)


class OsHold:
    """A file kept under an flock."""

    __slots__ = ("_fd", "_path")

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            # Removed while still locked: nobody can mistake the file of a later holder for this one.
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1


class OsDisk:
    """A directory of the operating system, made if it is not there."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._path = Path(directory)
        if not self._path.is_dir():
            make_directory(self._path)
        self._lock_fd = -1
        self._directory_fd = -1
        #: Open as long as the directory is locked: a sync of it must not fail for want of a descriptor.
        self._sync_fd = -1
        self.descriptors = DescriptorReserve()

    def create(self, name: str) -> File:
        self._refill()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return OsFile(self.descriptors.opening(lambda: os.open(self._of(name), flags, 0o600)))

    def open(self, name: str) -> File:
        try:
            return OsFile(os.open(self._of(name), os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EROFS):
                raise
            # A backup on a read-only disk can still be verified and read.
            return OsFile(os.open(self._of(name), os.O_RDONLY | os.O_CLOEXEC))

    def names(self) -> list[str]:
        self._refill()
        with self.descriptors.opening(lambda: os.scandir(self._path)) as entries:
            return sorted(entry.name for entry in entries if entry.name != LOCK_NAME and entry.is_file())

    def rename(self, old: str, new: str) -> None:
        self._of(old).rename(self._of(new))

    def remove(self, name: str) -> None:
        self._of(name).unlink()

    def free_bytes(self) -> int:
        found = os.statvfs(self._path)
        return found.f_bavail * found.f_frsize

    def sync_dir(self) -> None:
        if self._sync_fd >= 0:
            os.fsync(self._sync_fd)
        else:
            sync_directory(self._path)

    def lock(self) -> None:
        assert self._lock_fd < 0, "this disk is locked already"
        fd = os.open(self._of(LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._directory_fd = _locked_directory(self._path)
        except BlockingIOError:
            holder = _pid_in(fd)
            os.close(fd)
            raise DirectoryLockedError(str(self._path), holder) from None
        # The pid only serves the message that a second process gets; on a full disk it stays empty.
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._lock_fd = fd
        self._sync_fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._refill()

    def unlock(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1
        if self._directory_fd >= 0:
            os.close(self._directory_fd)
            self._directory_fd = -1
        if self._sync_fd >= 0:
            os.close(self._sync_fd)
            self._sync_fd = -1
        self.descriptors.lend()

    def hold(self, name: str) -> Hold:
        path = self._of(name)
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
            if _is_still_at(fd, path):
                self._hand_over(fd)
                return OsHold(path, fd)
            # Somebody reaped the file between our opening and locking it.
            os.close(fd)

    def reap(self, name: str) -> bool:
        path = self._of(name)
        try:
            fd = self.descriptors.opening(lambda: os.open(path, os.O_RDWR | os.O_CLOEXEC))
        except FileNotFoundError:
            return True
        except PermissionError:
            # Another user's: whether it is held cannot be told, so it is taken for held.
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still_at(fd, path):
                path.unlink()
        except BlockingIOError:
            return False
        finally:
            os.close(fd)
        return True

    def _refill(self) -> None:
        """Hold again what was lent: only whoever writes holds anything."""
        if self._lock_fd >= 0:
            self.descriptors.fill()

    def _hand_over(self, fd: int) -> None:
        """What root makes in the directory of another user, that user must be able to clear away."""
        if os.geteuid() == 0:
            owner = self._path.stat()
            os.fchown(fd, owner.st_uid, owner.st_gid)

    def _of(self, name: str) -> Path:
        assert name == Path(name).name, f"expected a flat file name, got {name!r}"
        return self._path / name


def _locked_directory(path: Path) -> int:
    """Claim the directory itself: unlike the file LOCK, nobody can delete that and start a second writer."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise
    except OSError:  # a file system that locks no directories: the file alone has to do
        os.close(fd)
        return -1
    return fd


def _pid_in(fd: int) -> int | None:
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else None


def _is_still_at(fd: int, path: Path) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(fd))
