"""The helper process that makes a snapshot of a ledger, or the indexes of its segments."""

import os
import sys
from pathlib import Path

from holdfast.core.ledger import LedgerConfig
from holdfast.errors import HoldfastError
from holdfast.journal.os_disk import OsDisk
from holdfast.ledger.job_index import build_missing
from holdfast.ledger.snapshots import PART_BYTES_MIN, failure_text, take_snapshot
from holdfast.process.child_command import child_command
from holdfast.process.lifeline import lifeline

#: What such a process makes.
SNAPSHOT, INDEX = "snapshot", "index"
#: Indexes are in no hurry, and nothing waits for them.
_INDEX_NICENESS = 10


def maker_command(directory: str, bytes_held: int) -> list[str]:
    """The command of a maker beside a server that holds so much: a sixth of it is for jobs.

    With its program and the chunks that it copies, the maker stays below a third of a large server.
    """
    return child_command(__name__, SNAPSHOT, directory, str(max(bytes_held // 6, PART_BYTES_MIN)))


def index_command(directory: str) -> list[str]:
    """The command of a maker of indexes."""
    return child_command(__name__, INDEX, directory)


def main(product: str, directory: str, part_bytes: str = str(PART_BYTES_MIN)) -> int:
    """The maker: one snapshot of everything sealed, holding about so much of jobs at a time; or the missing indexes."""
    lifeline()
    disk = OsDisk(Path(directory))
    try:
        if product == INDEX:
            os.nice(_INDEX_NICENESS)
            build_missing(disk)
        else:
            take_snapshot(disk, LedgerConfig(), int(part_bytes))
    except HoldfastError as error:
        print(error.message if product == INDEX else failure_text(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
