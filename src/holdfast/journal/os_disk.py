"""The real disk: one directory of the operating system.

Invariants: the directory is 0700 and the files 0600; no child inherits a descriptor; the lock on the directory is an
flock, so it is released however the process ends. The process with the lock reserves descriptors for the files that
the journal must open; readers of history do not use the reserve.
"""

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from holdfast.journal.descriptors import DescriptorReserve
from holdfast.journal.disk import File, LockFile
from holdfast.journal.errors import DirectoryLockedError
from holdfast.process.private_paths import make_directory, sync_directory

LOCK_NAME = "LOCK"
_ZEROS = bytes(1 << 20)
# Suffix with which Linux shows the name of a deleted file.
_DELETED = " (deleted)"
# Errors of file systems without fallocate.
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class OsFile:
    """An open file descriptor."""

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
            # The file was deleted while it was open: synced data is lost when this process ends.
            raise FileNotFoundError(errno.ENOENT, "the file being written was deleted")

    def _is_deleted(self) -> bool:
        """Return whether the file was deleted; uses /proc if possible, because fstat makes the next sync 50 % slower.

        Since Linux 6.13, a timestamp that was read must change with the next write, so that this write also changes
        metadata.
        """
        try:
            return os.readlink(self._link).endswith(_DELETED)  # noqa: PTH115 - a Path would cost more than the call
        except OSError:
            return not os.fstat(self._fd).st_nlink

    def reserve(self, size: int) -> None:
        present = self.size()
        if size <= present:
            return
        try:
            _extend(self._fd, present, size - present)
        except OSError:
            # Part of the space may have been allocated; bytes below `present` are not affected.
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
    """Allocate the space by writing zeros, for file systems without fallocate."""
    end = offset + size
    while offset < end:
        offset += os.pwrite(fd, _ZEROS[: end - offset], offset)


class OsLockFile:
    """A file with an flock."""

    __slots__ = ("_fd", "_path")

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            # Remove it while it is still locked, so that the file of a later holder is not removed.
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1


class OsDisk:
    """A directory of the operating system, created if it does not exist."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._path = Path(directory)
        if not self._path.is_dir():
            make_directory(self._path)
        self._lock_fd = -1
        self._directory_fd = -1
        #: Open while the directory is locked: a sync of it must not fail for lack of a descriptor.
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
            # So that a backup on a read-only disk can be verified and read.
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
        # The pid is only used in the error message of a second process; on a full disk the file stays empty.
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

    def hold(self, name: str) -> LockFile:
        path = self._of(name)
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
            if _is_still_at(fd, path):
                self._hand_over(fd)
                return OsLockFile(path, fd)
            # Another process reaped the file between our open and our flock: retry.
            os.close(fd)

    def reap(self, name: str) -> bool:
        path = self._of(name)
        try:
            fd = self.descriptors.opening(lambda: os.open(path, os.O_RDWR | os.O_CLOEXEC))
        except FileNotFoundError:
            return True
        except PermissionError:
            # The file belongs to another user: treat it as held, because that cannot be checked.
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
        """Fill the reserve again; only the process that holds the lock has a reserve."""
        if self._lock_fd >= 0:
            self.descriptors.fill()

    def _hand_over(self, fd: int) -> None:
        """Give a file that root created to the owner of the directory, so that the owner can remove it."""
        if os.geteuid() == 0:
            owner = self._path.stat()
            os.fchown(fd, owner.st_uid, owner.st_gid)

    def _of(self, name: str) -> Path:
        assert name == Path(name).name, f"expected a flat file name, got {name!r}"
        return self._path / name


def _locked_directory(path: Path) -> int:
    """Lock the directory itself: if the file LOCK is deleted, a second writer still cannot start."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise
    except OSError:  # the file system cannot lock directories: rely on the file LOCK
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
