"""Small file systems that can be filled up.

A file system is a tmpfs of its own, mounted where an arena keeps its data. It is unmounted by `close`, however the run
went; what was on it is gone then, so facts are read before.
"""

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_MOUNT, _UMOUNT = "/bin/mount", "/bin/umount"
_BALLAST = ".ballast"
_CHUNK_BYTES = 1 << 16
#: Enough for a run of some minutes, little enough to be filled up in a moment.
SIZE_BYTES = 64 << 20


class SmallDisk:
    """A folder on a file system of `size_bytes`, or a plain one where that may not be. Implements the port `Disk`.

    Data belongs into folders inside it: what fills it up lies beside them.
    """

    def __init__(self, path: Path, size_bytes: int = SIZE_BYTES) -> None:
        """Makes the folder and mounts the file system there."""
        self.path = path
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
        """No room is left, not for a byte."""
        assert not self.no_filling, self.no_filling
        with (self.path / _BALLAST).open("ab", buffering=0) as ballast:
            for size in (_CHUNK_BYTES, 1):
                with suppress(OSError):
                    while ballast.write(bytes(size)):
                        pass

    def free(self) -> None:
        """There is room again."""
        (self.path / _BALLAST).unlink(missing_ok=True)

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
    command = [_MOUNT, "-t", "tmpfs", "-o", f"size={size_bytes},mode=0700", "holdfast-torture", str(path)]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        return "there is no mount command"
    return done.stderr.strip() or f"mount ended with {done.returncode}" if done.returncode else ""
