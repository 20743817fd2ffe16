"""Pins: lock files with which a reader, in any process, keeps the segments that it still needs.

A pin is a file named after the lowest position needed, locked until its reader ends. Only the coordinator deletes
segments, and it calls `pinned_position` first.

Invariant: a pin protects the segments that exist when it is taken. A reader therefore takes the pin first and lists the
segments afterwards; if a position is already removed, the reader gets PositionRemovedError.
"""

import itertools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.journal.disk import Disk

_NAME = re.compile(r"pin-(\d+)-\d+-\d+")


@contextmanager
def pin(disk: Disk, position: int, *, pid: int | None = None) -> Iterator[None]:
    """Keep every segment that contains `position` or a later one until the block ends."""
    assert position > 0, "positions count from 1"
    held = disk.hold(_free_name(disk, position, os.getpid() if pid is None else pid))
    try:
        yield
    finally:
        held.release()


def pinned_position(disk: Disk) -> int | None:
    """Return the lowest position that a running reader needs; remove the pins of readers that have ended."""
    matches = [match for name in disk.names() if (match := _NAME.fullmatch(name))]
    living = [int(match[1]) for match in matches if not disk.reap(match[0])]
    return min(living, default=None)


def _free_name(disk: Disk, position: int, pid: int) -> str:
    taken = set(disk.names())
    names = (f"pin-{position}-{pid}-{number}" for number in itertools.count())
    return next(name for name in names if name not in taken)
