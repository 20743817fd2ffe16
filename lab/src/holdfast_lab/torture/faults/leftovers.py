"""Cleans up resources that killed processes have left behind.

A resource that outlives its process is claimed before it is created: by a file with its name, which is locked while the
owner lives. An unlocked file names a resource of a dead owner.
"""

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

#: Gone after a reboot, like the resources that are claimed here.
CLAIMS = Path("/run/holdfast-torture")


class Claim:
    """The claim of one name; raises `BlockingIOError` if another process holds it."""

    def __init__(self, name: str, folder: Path = CLAIMS) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / name
        self._descriptor = _locked(self._path)

    def release(self) -> None:
        """Releases the claim once the resource is gone; idempotent."""
        if self._descriptor >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


def sweep(take_away: Callable[[str], None], folder: Path = CLAIMS) -> None:
    """Removes the resources of dead owners; those of living owners stay."""
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
        raise BlockingIOError(f"{path} was removed meanwhile by a sweep")
    return descriptor
