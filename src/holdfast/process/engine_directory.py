"""The directory of a private engine: one process at a time runs servers in it.

The servers inherit the open directory and its lock. So the next process waits until the servers of the last one are
gone, even if that one was killed.
"""

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.errors import FailedPreconditionError

#: A server whose starter was killed takes a moment to exit.
_LOCK_S = 15.0
_POLL_S = 0.02


class EngineDirectory:
    """A directory that holds an engine's data; `descriptor` is open from `open` to `close`."""

    def __init__(self, path: Path, *, holds: str, engine: str, advice: str = "") -> None:
        """`holds`, `engine` and `advice` are parts of the error messages."""
        self.path = path
        self.descriptor = -1
        self._holds = holds
        self._engine = engine
        self._advice = advice

    def open(self, prepare: Callable[[Path], None]) -> None:
        """Prepares, opens and locks it; `FailedPreconditionError` if it cannot be used."""
        try:
            prepare(self.path)
            self.descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            message = f"cannot use {self.path} for {self._holds}: {error.strerror}"
            raise FailedPreconditionError(message, reason="DIRECTORY_UNUSABLE") from error
        deadline_s = time.monotonic() + _LOCK_S
        while not self._has_locked():
            if time.monotonic() > deadline_s:
                self.close()
                message = f"another process runs {self._engine} in {self.path}{self._advice}"
                raise FailedPreconditionError(message, reason="DIRECTORY_LOCKED")
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Closes the descriptor; the lock is released once the servers have exited, too."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _has_locked(self) -> bool:
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
