"""The helper process that makes a snapshot of one owner of the microservices topology."""

import sys
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.os_disk import OsDisk
from holdfast.process.child_command import child_command
from holdfast.process.lifeline import lifeline
from holdfast.topologies.microservices.services.owner_restore import OWNERS
from holdfast.topologies.microservices.services.owner_snapshots import take_snapshot


def snapshot_command(directory: Path) -> list[str]:
    """Returns the command of the helper; the name of the directory identifies the owner."""
    return child_command(__name__, str(directory))


def main(directory: Path) -> int:
    """Makes one snapshot of all sealed segments; returns the exit status."""
    lifeline()
    try:
        take_snapshot(OWNERS[directory.name](), DirectoryArchive(OsDisk(directory)))
    except (OSError, HoldfastError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
