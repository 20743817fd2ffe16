"""Backups of data directories: as a directory or as one archive file, with or without a running server.

Invariants:
- A backup gets its name only when it is complete, synced, and verified by replaying the copy.
- A failure leaves no files behind; the files of a killed process have another name, and are not a backup.
- Files beside the journal that belong to the directory are copied with it: the node's identity and the access tokens.
  Locks, sockets, pins and the data that recovery cut off are not.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from holdfast import __version__
from holdfast.core import events
from holdfast.core.digest import DIGEST_VERSION
from holdfast.errors import FailedPreconditionError, InvalidArgumentError
from holdfast.journal.archive import JournalArchive
from holdfast.journal.backup import (
    BACKUP_FORMAT,
    Backup,
    BackupDamagedError,
    NotABackupError,
    Progress,
    check_files,
    copy_journal,
    read_backup,
    write_backup,
)
from holdfast.journal.directory_archive import DirectoryArchive
from holdfast.journal.disk import Disk, LockFile
from holdfast.journal.errors import JournalDamagedError, JournalFullError
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.whole_write import is_no_space
from holdfast.ledger.node_identity import IDENTITY_NAME
from holdfast.ledger.restore import jobs_by_state
from holdfast.ledger.time_travel import verified
from holdfast.server.auth.tokens import FILE_NAME as TOKENS_NAME
from holdfast.topologies import backup_archive
from holdfast.topologies.table import TOPOLOGIES

LEDGER = "ledger"
#: The files beside a journal that are copied with it.
BESIDE = (IDENTITY_NAME, TOKENS_NAME)
PARTIAL = ".partial-"

#: Begins a named stage of the work, and returns the callback for its progress.
Watch = Callable[[str], Progress]


class ReplayedJournal(msgspec.Struct, frozen=True):
    """The result of replaying a whole journal."""

    position: int
    digest: int
    last_ms: int
    jobs: dict[str, int]


def owner_journals() -> dict[str, Any]:
    """For each kind of journal that is not a ledger's, the module that replays and restores it.

    Such a module has `OWNERS`, by the names of the directories, `owner_state` and `restore_owner`.
    """
    modules = [import_module(entry.journal_module) for entry in TOPOLOGIES if entry.journal_module]
    return {kind: module for module in modules for kind in module.OWNERS}


class UnchangingDisk(OsDisk):
    """A directory from which no process removes files: it needs no pins, and may be read-only."""

    def hold(self, name: str) -> LockFile:
        return _NoLockFile()


class _NoLockFile:
    def release(self) -> None:
        """Does nothing: no pin was made."""


def take_backup(source: Path, target: Path, *, now_ms: int, watch: Watch) -> Backup:
    """Copies a data directory to a target that must not exist yet; the copy gets this name once it is verified."""
    _refuse_taken(target)
    partial = target.with_name(f"{target.name}{PARTIAL}{secrets.token_hex(4)}")
    with _cleaned_up(partial, f"the backup {str(target)!r}"):
        backup = _copied(OsDisk(source), source.absolute().name, OsDisk(partial), now_ms, watch)
        if backup_archive.is_archive(target):
            packed = partial.with_name(f"{partial.name}.packed")
            backup_archive.pack(partial, packed, name=target.name, progress=watch("packing"))
            backup_archive.check(packed, backup)
            shutil.rmtree(partial)
            _rename(packed, target)
        else:
            _rename(partial, target)
    return backup


def prove(
    kind: str, archive: JournalArchive, progress: Progress, digest_version: int = DIGEST_VERSION
) -> ReplayedJournal:
    """Replays all frames, and compares the digest after each one; raises `JournalError` with the problem."""
    if kind == LEDGER:
        proof, ledger = verified(archive, progress, digest_version)
        return ReplayedJournal(proof.end_position, proof.digest, ledger.state.last_ms, jobs_by_state(ledger))
    state = owner_journals()[kind].owner_state(kind, archive, progress, digest_version)
    return ReplayedJournal(state.position, state.digest, state.last_ms, state.counts())


@contextmanager
def opened_backup(path: Path, beside: Path, watch: Watch) -> Iterator[tuple[Backup, Disk]]:
    """Opens and verifies a backup: replays it, and compares every file. An archive is unpacked next to `beside`."""
    if path.is_dir():
        disk = UnchangingDisk(path)
        yield _proved(disk, watch), disk
        return
    folder = beside.with_name(f"{beside.name}{PARTIAL}{secrets.token_hex(4)}")
    with _cleaned_up(folder, f"the contents of {str(path)!r}"):
        folder.mkdir(mode=0o700)
        backup_archive.unpack(path, folder)
        disk = UnchangingDisk(folder)
        yield _proved(disk, watch), disk
        shutil.rmtree(folder)


def _proved(disk: Disk, watch: Watch) -> Backup:
    backup = read_backup(disk)
    if backup.kind != LEDGER and backup.kind not in owner_journals():
        message = f"the backup has the kind {backup.kind!r}, which this Holdfast does not know; use a newer Holdfast"
        raise NotABackupError(message, reason="BACKUP_VERSION")
    # Replay first: its error names the damaged position.
    try:
        proved = prove(backup.kind, DirectoryArchive(disk), watch("replaying"), backup.digest_version)
    except JournalDamagedError as error:
        raise BackupDamagedError(
            f"file {error.file!r} of the backup is damaged at offset {error.offset}, position {error.position}:"
            f" {error.problem}. Nothing was changed; use another backup.",
            reason="BACKUP_DAMAGED",
            details=error.details,
        ) from error
    check_files(disk, backup, watch("comparing"))
    if (proved.position, f"{proved.digest:016x}") != (backup.copied.position, backup.digest):
        message = (
            f"expected the state {backup.digest} at position {backup.copied.position} from replaying the backup, got"
            f" {proved.digest:016x} at position {proved.position}; nothing was changed, use another backup"
        )
        raise NotABackupError(message, reason="BACKUP_DAMAGED")
    return backup


def _copied(source: Disk, name: str, target: Disk, now_ms: int, watch: Watch) -> Backup:
    kind = _kind_of(DirectoryArchive(source), name)
    copied = copy_journal(source, target, BESIDE, watch("copying"))
    proved = prove(kind, DirectoryArchive(target), watch("verifying the copy"))
    backup = Backup(
        BACKUP_FORMAT,
        __version__,
        kind,
        copied,
        f"{proved.digest:016x}",
        proved.last_ms,
        proved.jobs,
        now_ms,
    )
    assert proved.position == copied.position, "the verified copy must end at the copied position"
    check_files(target, backup, watch("comparing"))
    write_backup(target, backup)
    return backup


def _kind_of(archive: JournalArchive, name: str) -> str:
    """Returns the kind of the journal: the frames identify a ledger; an owner is identified by the directory's name."""
    owners = owner_journals()
    with archive.pin(1):
        view = archive.view()
        frame = next(iter(view.frames(view.first_position - 1)), None)
    try:
        if frame is None:
            return name if name in owners else LEDGER
        events.decode(frame.body)
    except msgspec.MsgspecError:
        if name in owners:
            return name
        raise FailedPreconditionError(
            f"{name!r} is not the journal of a ledger, and does not have the name of a service with a journal"
            f" ({', '.join(owners)}); rename the directory to the name under which it was served",
            reason="JOURNAL_OF_NOBODY",
        ) from None
    return LEDGER


def _refuse_taken(target: Path) -> None:
    """Refuses a target that exists: a backup never replaces or mixes with other files."""
    if not target.parent.is_dir():
        raise InvalidArgumentError(f"the directory {str(target.parent)!r} for the backup does not exist")
    if target.is_dir() and not backup_archive.is_archive(target):
        if os.path.ismount(target):
            raise InvalidArgumentError(f"{str(target)!r} is a mount point; name a directory inside it")
        if not any(target.iterdir()):
            return
    if target.exists():
        raise FailedPreconditionError(f"{str(target)!r} exists already; choose another name", reason="TARGET_EXISTS")


def _rename(partial: Path, target: Path) -> None:
    """Gives the complete backup its name, durably."""
    partial.rename(target)
    descriptor = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _cleaned_up(partial: Path, what: str) -> Iterator[None]:
    """Removes all files with this prefix after a failure; raises `JournalFullError` if the disk is full."""
    try:
        yield
    except BaseException as error:
        for path in partial.parent.iterdir():
            if path.name.startswith(partial.name):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if isinstance(error, OSError) and is_no_space(error):
            raise JournalFullError(
                f"there is no space for {what} in {str(partial.parent)!r}: {error.strerror}; nothing was left there."
                " Free some space, or choose another directory",
                reason="NO_SPACE",
            ) from error
        raise
