"""Descriptors that are held for the journal, so that connections cannot use up what it needs for its next file.

They are open on nothing and are closed, one by one, where a file could not be opened for want of a descriptor. Whoever
opens files elsewhere may take what was closed first; then the next one is closed, and in the end the call fails.
"""

import contextlib
import errno
import os
from collections.abc import Callable
from typing import TypeVar

_Opened = TypeVar("_Opened")

#: Enough for a segment, the manifest and a look at the directory, and for the pipes of a process that makes a snapshot.
RESERVED = 16


def is_no_descriptor(error: OSError) -> bool:
    """Whether the process, or the whole system, has too many files open."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


class DescriptorReserve:
    """Held descriptors. Made empty; `fill` takes as many as can be had."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: list[int] = []

    def fill(self) -> None:
        """Hold as many as should be held again, as far as there are any."""
        with contextlib.suppress(OSError):
            while len(self._held) < RESERVED:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def lend(self) -> None:
        """Close all that are held, for a call that needs several; `fill` takes them back."""
        while self._held:
            os.close(self._held.pop())

    def opening(self, opens: Callable[[], _Opened]) -> _Opened:
        """Make a call that opens a file, with one held descriptor less as long as it finds none."""
        while True:
            try:
                return opens()
            except OSError as error:
                if not is_no_descriptor(error) or not self._held:
                    raise
                os.close(self._held.pop())
