"""Files that mark a directory as something that nobody may serve: a backup, or one whose restore has not ended.

Invariant: a restore marks the directory before it writes anything else there, and takes the mark away when everything
else is durable. So nobody serves a part of a state, nor begins with nothing where a state was about to be.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import Code
from holdfast.journal.disk import Disk
from holdfast.journal.errors import JournalError

BACKUP_NAME = "BACKUP"
RESTORING_NAME = "RESTORING"


class MarkedDirectoryError(JournalError):
    """Somebody wanted to write into a directory that is marked."""

    code = Code.FAILED_PRECONDITION


def refuse_marked(disk: Disk) -> None:
    """Raises MarkedDirectoryError if nobody may serve this directory."""
    names = disk.names()
    if BACKUP_NAME in names:
        raise MarkedDirectoryError(
            "this directory is a backup, and is not served as it is: its next leases would have tokens that workers"
            " may hold already; make a data directory of it with `holdfast journal restore BACKUP DIRECTORY`",
            reason="IS_A_BACKUP",
        )
    if RESTORING_NAME in names:
        raise MarkedDirectoryError(
            "a restore into this directory was interrupted, or has not ended yet; if it was, remove the directory and"
            " restore again",
            reason="RESTORE_INCOMPLETE",
        )


@contextmanager
def restoring(disk: Disk) -> Iterator[None]:
    """Marks a directory until everything that the block writes is durable; after a failure the mark stays."""
    disk.create(RESTORING_NAME).close()
    disk.sync_dir()
    yield
    disk.sync_dir()
    disk.remove(RESTORING_NAME)
    disk.sync_dir()
