"""Complete writes: repeats short writes, and replaces small files atomically."""

import contextlib
import errno
import os

from holdfast.journal.descriptors import is_no_descriptor
from holdfast.journal.disk import Disk, File

TEMPORARY_SUFFIX = ".tmp"
# A full disk, an exceeded quota, a process's limit on file sizes.
NO_SPACE_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_no_space(error: OSError) -> bool:
    return error.errno in NO_SPACE_ERRNOS


def is_passing(error: OSError) -> bool:
    """Return whether the same call may succeed later: there was no space or no descriptor, but the disk is fine."""
    return is_no_space(error) or is_no_descriptor(error)


def write_fully(file: File, offset: int, data: bytes) -> None:
    """Write all of `data`; a write of zero bytes raises, so that this cannot loop for ever."""
    written = file.write_at(offset, data)
    while written < len(data):
        more = file.write_at(offset + written, data[written:])
        if more <= 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        written += more


def replace_file(disk: Disk, name: str, data: bytes) -> None:
    """Replace the contents of `name`, durably: after a crash the file has either the new or the old contents."""
    temporary = name + TEMPORARY_SUFFIX
    remove_if_present(disk, temporary)
    try:
        _write_new_file(disk, temporary, data)
        disk.rename(temporary, name)
    except OSError:
        remove_if_present(disk, temporary)
        raise
    disk.sync_dir()


def _write_new_file(disk: Disk, name: str, data: bytes) -> None:
    file = disk.create(name)
    try:
        write_fully(file, 0, data)
        file.sync()
    finally:
        file.close()


def remove_if_present(disk: Disk, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        disk.remove(name)


def read_whole(disk: Disk, name: str) -> bytes:
    file = disk.open(name)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()
