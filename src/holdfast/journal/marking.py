"""The name of the file that marks a directory as a backup, which nobody serves from."""

from holdfast.errors import Code
from holdfast.journal.disk import Disk
from holdfast.journal.errors import JournalError

BACKUP_NAME = "BACKUP"


class BackupOpenedError(JournalError):
    """Somebody wanted to write into a backup."""

    code = Code.FAILED_PRECONDITION


def refuse_backup(disk: Disk) -> None:
    """Raises BackupOpenedError if the directory is a backup: what goes on from it must not repeat tokens."""
    if BACKUP_NAME in disk.names():
        raise BackupOpenedError(
            "this directory is a backup, and is not served as it is: its next leases would have tokens that workers"
            " may hold already; make a data directory of it with `holdfast journal restore BACKUP DIRECTORY`",
            reason="IS_A_BACKUP",
        )
