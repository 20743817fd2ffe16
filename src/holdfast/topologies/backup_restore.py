"""Restores a backup to a data directory that can be served; it reuses no position, token or epoch of the lost one.

Invariants:
- The backup is verified completely before anything is written.
- The directory is marked from the first write to the last: after an interrupted restore it cannot be served, and the
  next restore refuses it. A restore that fails removes the files that it wrote.
"""

import contextlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from holdfast.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from holdfast.journal.backup import Backup, copy_beside
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.directory_marks import restoring
from holdfast.journal.disk import Disk
from holdfast.journal.errors import JournalFullError
from holdfast.journal.os_disk import LOCK_NAME, OsDisk
from holdfast.journal.whole_write import is_no_space
from holdfast.ledger.restore import restore_ledger
from holdfast.ledger.time_travel import Moment
from holdfast.topologies.backup import BESIDE, LEDGER, Watch, opened_backup, owner_journals

#: Files that a new file system has, and our lock.
_IGNORED = frozenset({"lost+found", LOCK_NAME})


class RestoredDirectory(msgspec.Struct, frozen=True):
    """A restored data directory. `position` and `digest` are those of the backup, at the requested moment."""

    kind: str
    position: int
    digest: str
    log_time_ms: int
    jobs: dict[str, int]
    #: The number of jobs that were running, and are QUEUED again.
    leases_ended: int
    cluster_id: str
    taken_ms: int
    #: The files beside the journal that were restored.
    beside: list[str]


def restore_backup(
    path: Path, target: Path, is_past: Moment | None, *, now_ms: int, watch: Watch, reaches: int = 0
) -> RestoredDirectory:
    """Restores a backup, with the state before the first event that `is_past`; None: with the state at its end.

    The backup must reach at least to the position `reaches`.
    """
    if not path.exists():
        raise InvalidArgumentError(f"there is no backup {str(path)!r}")
    _refuse_filled(target)
    if not target.absolute().parent.is_dir():
        raise InvalidArgumentError(f"the directory {str(target.absolute().parent)!r} to restore into does not exist")
    with opened_backup(path, target.absolute(), watch) as (backup, disk), _filling(target) as made:
        if backup.copied.position < reaches:
            raise NotFoundError(f"the backup ends with position {backup.copied.position}, before {reaches}")
        beside = copy_beside(disk, made, BESIDE)
        cluster_id = secrets.token_bytes(16)
        if backup.kind == LEDGER:
            restored = _ledger(backup, disk, made, is_past, now_ms, cluster_id)
        else:
            restored = _owner(backup, disk, made, is_past, now_ms, cluster_id)
    return msgspec.structs.replace(restored, beside=beside)


def _ledger(
    backup: Backup, disk: Disk, made: Disk, is_past: Moment | None, now_ms: int, cluster_id: bytes
) -> RestoredDirectory:
    found = restore_ledger(
        DirectoryArchive(disk),
        made,
        is_past or (lambda _position, _event: False),
        now_ms=now_ms,
        cluster_id=cluster_id,
        epoch=backup.copied.epoch,
    )
    return RestoredDirectory(
        LEDGER,
        found.position,
        f"{found.digest:016x}",
        found.log_time_ms,
        found.jobs,
        found.leases_ended,
        cluster_id.hex(),
        backup.taken_ms,
        [],
    )


def _owner(
    backup: Backup, disk: Disk, made: Disk, is_past: Moment | None, now_ms: int, cluster_id: bytes
) -> RestoredDirectory:
    if is_past is not None:
        raise InvalidArgumentError("a service can only be restored to the end of its backup; leave out --at")
    owners = owner_journals()[backup.kind]
    state = owners.owner_state(backup.kind, DirectoryArchive(disk), lambda _position, _end: None)
    digest = f"{state.digest:016x}"
    ended = owners.restore_owner(state, made, now_ms=now_ms, cluster_id=cluster_id, epoch=backup.copied.epoch)
    return RestoredDirectory(
        backup.kind,
        state.position,
        digest,
        state.last_ms,
        state.counts(),
        ended,
        cluster_id.hex(),
        backup.taken_ms,
        [],
    )


def _refuse_filled(target: Path) -> None:
    """Refuses a target that is not empty: a restore never overwrites files."""
    if target.exists() and not target.is_dir():
        raise FailedPreconditionError(f"{str(target)!r} is not a directory", reason="TARGET_EXISTS")
    names = {path.name for path in target.iterdir()} - _IGNORED if target.is_dir() else set()
    if names:
        raise FailedPreconditionError(
            f"{str(target)!r} is not empty: it contains {min(names)!r}; choose another directory, or move this one away"
            " first and keep it until you are sure",
            reason="TARGET_EXISTS",
        )


@contextmanager
def _filling(target: Path) -> Iterator[Disk]:
    """Locks an empty directory; after a failure it is empty again, or removed if it did not exist."""
    was_there = target.is_dir()
    disk = OsDisk(target)
    disk.lock()
    try:
        _refuse_filled(target)
        with restoring(disk):
            yield disk
    except BaseException as error:
        for name in disk.names():
            with contextlib.suppress(FileNotFoundError):
                disk.remove(name)
        (target / LOCK_NAME).unlink(missing_ok=True)
        if not was_there:
            target.rmdir()
        if isinstance(error, OSError) and is_no_space(error):
            raise JournalFullError(
                f"there is no space for the state in {str(target)!r}: {error.strerror}; nothing was left there",
                reason="NO_SPACE",
            ) from error
        raise
    finally:
        disk.unlock()
