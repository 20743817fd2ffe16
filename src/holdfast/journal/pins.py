"""Pins: how a reader, in this process or another, keeps the segments that it still needs.

A pin is a file named after the lowest position needed, held as long as its reader lives. Only the coordinator
deletes segments, and it asks `pinned_position` first.

Invariant: a pin protects what is there once it is taken. A reader therefore pins first and looks at the
segments afterwards; if what it wanted is gone by then, it learns so from PositionRemovedError.
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
    """Keep every segment that holds `position` or a later one until the block ends."""
    assert position > 0, "positions count from 1"
    held = disk.hold(_free_name(disk, position, os.getpid() if pid is None else pid))
    try:
        yield
    finally:
        held.release()


def pinned_position(disk: Disk) -> int | None:
    """Return the lowest position that a living reader needs, removing the pins of those that are gone."""
    matches = [match for name in disk.names() if (match := _NAME.fullmatch(name))]
    living = [int(match[1]) for match in matches if not disk.reap(match[0])]
    return min(living, default=None)


def _free_name(disk: Disk, position: int, pid: int) -> str:
    taken = set(disk.names())
    names = (f"pin-{position}-{pid}-{number}" for number in itertools.count())
    return next(name for name in names if name not in taken)
