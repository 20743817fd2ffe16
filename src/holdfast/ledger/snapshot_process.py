"""The helper process that makes a snapshot of a ledger, or the indexes of its segments."""

import os
import sys
from pathlib import Path

from holdfast.core.ledger import LedgerConfig
from holdfast.errors import HoldfastError
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.os_disk import OsDisk
from holdfast.ledger.job_index import build_missing
from holdfast.ledger.snapshots import PART_BYTES_MIN, failure_text, take_snapshot
from holdfast.process.child_command import child_command
from holdfast.process.lifeline import lifeline

#: The products of a helper process.
SNAPSHOT, INDEX = "snapshot", "index"
#: Nothing waits for indexes, so their process runs at low priority.
_INDEX_NICENESS = 10


def maker_command(directory: str, bytes_held: int) -> list[str]:
    """Returns the command of a snapshot maker, which holds jobs up to a sixth of the server's `bytes_held`.

    With its program and the chunks that it copies, the maker uses less than a third of a large server's memory.
    """
    return child_command(__name__, SNAPSHOT, directory, str(max(bytes_held // 6, PART_BYTES_MIN)))


def index_command(directory: str) -> list[str]:
    """Returns the command of a process that builds missing indexes."""
    return child_command(__name__, INDEX, directory)


def main(product: str, directory: str, part_bytes: str = str(PART_BYTES_MIN)) -> int:
    """Makes a snapshot of all sealed segments with about `part_bytes` of jobs in memory, or the missing indexes."""
    lifeline()
    disk = OsDisk(Path(directory))
    try:
        if product == INDEX:
            os.nice(_INDEX_NICENESS)
            build_missing(disk)
        else:
            take_snapshot(DirectoryArchive(disk), LedgerConfig(), int(part_bytes))
    except HoldfastError as error:
        print(error.message if product == INDEX else failure_text(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
