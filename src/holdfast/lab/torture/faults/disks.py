"""Small file systems that can be filled up.

A file system is a tmpfs of its own, mounted where an arena keeps its data. It is full once it is made as small as what
is on it: that costs neither time nor memory, and leaves no file among the data. It is unmounted by `close`, however the
run went; what was on it is gone then.
"""

import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.lab.torture.ports import NotNowError

_MOUNT, _UMOUNT = "/bin/mount", "/bin/umount"
#: Others write while it is being filled up.
_ATTEMPTS = 50
SIZE_BYTES = 256 << 20


class SmallDisk:
    """A folder on a file system of `size_bytes`, or a plain one where that may not be. Implements the port `Disk`."""

    def __init__(self, path: Path, size_bytes: int = SIZE_BYTES) -> None:
        """Makes the folder and mounts the file system there."""
        self.path = path
        self._size_bytes = size_bytes
        path.mkdir(parents=True, exist_ok=True)
        #: Why it cannot be filled up, if it cannot; else empty.
        self.no_filling = _mounted(path, size_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def fill(self) -> None:
        """No room is left, but what is reserved already; the least that an empty one can be is a page.

        Raises `NotNowError` if others are too quick for it.
        """
        assert not self.no_filling, self.no_filling
        problem = ""
        for _ in range(_ATTEMPTS):
            status = os.statvfs(self.path)
            used_blocks = max(1, status.f_blocks - status.f_bfree)
            if status.f_blocks == used_blocks:
                return
            # Refused if somebody has taken more meanwhile.
            problem = _mount("-o", f"remount,size={used_blocks * status.f_frsize}", str(self.path))
        raise NotNowError(f"{self.path} cannot be filled up: {problem or 'it has room again and again'}")

    def free(self) -> None:
        """There is room again."""
        if not self.no_filling and (problem := _mount("-o", f"remount,size={self._size_bytes}", str(self.path))):
            raise OSError(f"{self.path} stays full: {problem}")

    def free_bytes(self) -> int:
        """How much room there is."""
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize

    def close(self) -> None:
        """Unmounts it, together with what is on it; a second time does nothing."""
        if self.no_filling:
            return
        self.no_filling = "it was unmounted"
        # Lazily: whoever still has a file open keeps it from going, and not from being out of the way.
        subprocess.run([_UMOUNT, "--lazy", str(self.path)], check=True, capture_output=True)


def _mounted(path: Path, size_bytes: int) -> str:
    """Why it was not."""
    if os.geteuid() != 0:
        return "only root may mount a small file system"
    return _mount("-t", "tmpfs", "-o", f"size={size_bytes},mode=0700", "holdfast-torture", str(path))


def _mount(*words: str) -> str:
    """Why it did not work; empty if it did."""
    try:
        done = subprocess.run([_MOUNT, *words], check=False, capture_output=True, text=True)
    except FileNotFoundError:
        return "there is no mount command"
    return (done.stderr.strip() or f"mount ended with {done.returncode}") if done.returncode else ""
