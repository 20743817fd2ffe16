"""Small file systems that can be filled.

A file system is a tmpfs mounted at the data folder of an arena. It is filled by shrinking it to the size of its
content: that takes neither time nor memory, and adds no file to the data. `close` unmounts it in any case, and its
content is gone then.
"""

import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast_lab.torture.ports import NotNowError

_MOUNT, _UMOUNT = "/bin/mount", "/bin/umount"
#: Other processes write while it is being filled.
_ATTEMPTS = 50
SIZE_BYTES = 256 << 20


class SmallDisk:
    """A folder on a file system of `size_bytes`, or a plain one without mount rights; implements the port `Disk`."""

    def __init__(self, path: Path, size_bytes: int = SIZE_BYTES) -> None:
        """Creates the folder and mounts the file system there."""
        self.path = path
        self._size_bytes = size_bytes
        path.mkdir(parents=True, exist_ok=True)
        #: The reason why it cannot be filled, or empty.
        self.no_filling = _mounted(path, size_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def fill(self) -> None:
        """Leaves no free space, except reserved space and a minimum of one page.

        Raises `NotNowError` if other processes free space faster than it is taken.
        """
        assert not self.no_filling, self.no_filling
        problem = ""
        for _ in range(_ATTEMPTS):
            status = os.statvfs(self.path)
            used_blocks = max(1, status.f_blocks - status.f_bfree)
            if status.f_blocks == used_blocks:
                return
            # Fails if a process has written more meanwhile.
            problem = _mount("-o", f"remount,size={used_blocks * status.f_frsize}", str(self.path))
        raise NotNowError(f"{self.path} cannot be filled: {problem or 'other processes keep freeing space'}")

    def free(self) -> None:
        """Restores the original size."""
        if not self.no_filling and (problem := _mount("-o", f"remount,size={self._size_bytes}", str(self.path))):
            raise OSError(f"{self.path} stays full: {problem}")

    def free_bytes(self) -> int:
        """Returns the free space."""
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize

    def close(self) -> None:
        """Unmounts it, which deletes its content; idempotent."""
        if self.no_filling:
            return
        self.no_filling = "it was unmounted"
        # Lazily: an open file must not block the unmount.
        subprocess.run([_UMOUNT, "--lazy", str(self.path)], check=True, capture_output=True)


def _mounted(path: Path, size_bytes: int) -> str:
    """Mounts the file system; returns the error, or an empty string."""
    if os.geteuid() != 0:
        return "only root may mount a small file system"
    return _mount("-t", "tmpfs", "-o", f"size={size_bytes},mode=0700", "holdfast-torture", str(path))


def _mount(*words: str) -> str:
    """Runs `mount`; returns the error, or an empty string."""
    try:
        done = subprocess.run([_MOUNT, *words], check=False, capture_output=True, text=True)
    except FileNotFoundError:
        return "there is no mount command"
    return (done.stderr.strip() or f"mount ended with {done.returncode}") if done.returncode else ""
