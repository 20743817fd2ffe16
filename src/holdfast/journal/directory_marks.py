"""Files that mark a directory that must not be served: a backup, or the target of an unfinished restore.

Invariant: a restore marks the directory before it writes anything else, and removes the mark when everything else is
durable. So no server opens a partial state, or starts an empty journal in the target of a restore.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import Code
from holdfast.journal.disk import Disk
from holdfast.journal.errors import JournalError

BACKUP_NAME = "BACKUP"
RESTORING_NAME = "RESTORING"


class MarkedDirectoryError(JournalError):
    """The directory is marked and must not be opened for writing."""

    code = Code.FAILED_PRECONDITION


def refuse_marked(disk: Disk) -> None:
    """Raises MarkedDirectoryError if this directory must not be served."""
    names = disk.names()
    if BACKUP_NAME in names:
        raise MarkedDirectoryError(
            "this directory is a backup and cannot be served directly: new leases would get tokens that workers may"
            " already hold; create a data directory from it with `holdfast journal restore BACKUP DIRECTORY`",
            reason="IS_A_BACKUP",
        )
    if RESTORING_NAME in names:
        raise MarkedDirectoryError(
            "a restore into this directory was interrupted or is still running; if it was interrupted, remove the"
            " directory and restore again",
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
