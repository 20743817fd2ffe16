"""A reserve of file descriptors for the journal, so that connections cannot exhaust what its next file needs.

The reserve holds descriptors of /dev/null. When a file cannot be opened for lack of a descriptor, one of them is closed
and the call is repeated. Another thread may take the freed descriptor first; then the next one is closed, and when the
reserve is empty the call fails.
"""

import contextlib
import errno
import os
from collections.abc import Callable
from typing import TypeVar

_Opened = TypeVar("_Opened")

#: Enough for a segment, the manifest, a directory listing, and the pipes of a process that writes a snapshot.
RESERVED = 16


def is_no_descriptor(error: OSError) -> bool:
    """Return whether the process, or the whole system, has too many open files."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


class DescriptorReserve:
    """Reserved descriptors. Empty at first; `fill` opens as many as possible."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: list[int] = []

    def fill(self) -> None:
        """Open descriptors until the reserve is full or none are left."""
        with contextlib.suppress(OSError):
            while len(self._held) < RESERVED:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def lend(self) -> None:
        """Close all reserved descriptors, for a call that needs several; `fill` reserves them again."""
        while self._held:
            os.close(self._held.pop())

    def opening(self, opens: Callable[[], _Opened]) -> _Opened:
        """Call `opens`; when it finds no descriptor, close a reserved one and call it again."""
        while True:
            try:
                return opens()
            except OSError as error:
                if not is_no_descriptor(error) or not self._held:
                    raise
                os.close(self._held.pop())
