"""Makes snapshots of one owner of the microservices topology in a process of its own, which ends with its parent."""

import subprocess
import sys
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.journal.os_disk import OsDisk
from holdfast.process.child_command import child_command
from holdfast.process.lifeline import die_with_parent, lifeline
from holdfast.topologies.microservices.services.owner_restore import OWNERS
from holdfast.topologies.microservices.services.owner_snapshots import take_snapshot


class OwnerSnapshotProcess:
    """Starts a maker and waits for it; `make` on one thread, `stop` on another."""

    def __init__(self, directory: Path) -> None:
        """The name of the directory says which owner it belongs to."""
        self._command = child_command(__name__, str(directory))
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def make(self) -> None:
        """Runs one maker to its end; `OSError` if it made no snapshot."""
        pipe = subprocess.PIPE
        with subprocess.Popen(self._command, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe) as process:  # noqa: S603 - our own program
            self._process = process
            if self._is_stopped:
                process.kill()
            assert process.stderr is not None
            errors = process.stderr.read()  # its standard input stays open: it is the maker's lifeline
        if process.returncode:
            lines = errors.decode(errors="replace").strip().splitlines()
            raise OSError(lines[-1] if lines else f"the maker ended with status {process.returncode}")

    def stop(self) -> None:
        """Kills a maker that is under way; it leaves nothing behind but a temporary file."""
        self._is_stopped = True
        if self._process is not None:
            self._process.kill()


def main(directory: Path) -> int:
    """The maker: one snapshot of everything sealed."""
    die_with_parent()
    lifeline()
    try:
        take_snapshot(OWNERS[directory.name](), OsDisk(directory))
    except (OSError, HoldfastError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
