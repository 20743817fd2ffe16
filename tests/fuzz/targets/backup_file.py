"""The file `BACKUP`, which describes a backup: read as it was sealed, or refused."""

import random

import msgspec

from holdfast.journal.backup import Backup, BackupDamagedError, CopiedFile, CopiedJournal, NotABackupError, read_backup
from holdfast.journal.directory_marks import BACKUP_NAME
from holdfast_lab.simulation.disk import SimDisk
from tests.fuzz.depth import DEEP_JSON

_COPIED = CopiedJournal("00" * 16, 2, 1, 15, [CopiedFile("MANIFEST", 64, "00" * 32)])
_BACKUP = Backup(1, "0.1.0", "ledger", _COPIED, "5", 1_700_000_000_000, {"DONE": 3}, 1_700_000_000_001)
_SEALED = _BACKUP.sealed()


def seeds() -> list[bytes]:
    """The file as it is written, and invalid ones."""
    deep = b'{"format":1,"x":' + DEEP_JSON
    return [msgspec.json.encode(_SEALED), b"{}", b"", b'{"format":"\xff"}', DEEP_JSON, deep]


def fuzz(data: bytes) -> None:
    """Reads the file."""
    disk = SimDisk(random.Random(0), {BACKUP_NAME: data})
    try:
        backup = read_backup(disk)
    except (NotABackupError, BackupDamagedError) as error:
        assert error.reason.startswith("BACKUP_")
        return
    assert backup == _SEALED, "the backup that was read differs from the sealed one"
