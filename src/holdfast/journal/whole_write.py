"""Whole writes: the loop over short ones, and the replacement of a small file in one step."""

import contextlib
import errno
import os

from holdfast.journal.descriptors import is_no_descriptor
from holdfast.journal.disk import Disk, File

TEMPORARY_SUFFIX = ".tmp"
# A full disk, a user's quota, a process's limit on file sizes.
NO_SPACE_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_no_space(error: OSError) -> bool:
    return error.errno in NO_SPACE_ERRNOS


def is_passing(error: OSError) -> bool:
    """Whether the same call may succeed later, because nothing is wrong with the disk: no space, no descriptor."""
    return is_no_space(error) or is_no_descriptor(error)


def write_fully(file: File, offset: int, data: bytes) -> None:
    """Write all of `data`; a file that takes nothing is an error, so that this cannot spin."""
    written = file.write_at(offset, data)
    while written < len(data):
        more = file.write_at(offset + written, data[written:])
        if more <= 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        written += more


def replace_file(disk: Disk, name: str, data: bytes) -> None:
    """Make `name` hold `data`, durably: after a crash it holds either that or what it held before."""
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
