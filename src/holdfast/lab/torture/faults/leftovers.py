"""Who is killed cannot clean up: whoever comes next does it.

What outlives a process is claimed before it is made: a file of its name, locked as long as the owner lives. A file that
nobody has locked names what a dead owner has left behind.
"""

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

#: Gone with the next boot, as is what is claimed here.
CLAIMS = Path("/run/holdfast-torture")


class Claim:
    """One name. Raises `BlockingIOError` if somebody else is busy with it."""

    def __init__(self, name: str, folder: Path = CLAIMS) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / name
        self._descriptor = _locked(self._path)

    def release(self) -> None:
        """What it stands for is gone; a second time does nothing."""
        if self._descriptor >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


def sweep(take_away: Callable[[str], None], folder: Path = CLAIMS) -> None:
    """Takes away what dead owners have left behind; what has a living one stays."""
    for path in list(folder.iterdir()) if folder.exists() else []:
        with suppress(BlockingIOError, FileNotFoundError):
            descriptor = _locked(path, create=False)
            take_away(path.name)
            path.unlink(missing_ok=True)
            os.close(descriptor)


def _locked(path: Path, *, create: bool = True) -> int:
    descriptor = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    if os.fstat(descriptor).st_nlink == 0:
        os.close(descriptor)
        raise BlockingIOError(f"{path} was swept away meanwhile")
    return descriptor
