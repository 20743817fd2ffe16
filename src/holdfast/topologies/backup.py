"""Backups of data directories: as a directory or as one archive file, made beside a running server or without one.

Invariants:
- A backup has its name only when it is whole, synced, and proved by replaying the copy.
- A failure leaves nothing behind; what a killed process leaves has another name, and is no backup.
- The files beside a journal that belong to its directory go with it: whose node it is, and who may do what. Locks,
  sockets, pins and what recovery cut off do not.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from holdfast import __version__
from holdfast.core import events
from holdfast.core.digest import DIGEST_VERSION
from holdfast.errors import FailedPreconditionError, InvalidArgumentError
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
from holdfast.journal.disk import Disk, Hold
from holdfast.journal.errors import JournalDamagedError, JournalFullError
from holdfast.journal.os_disk import OsDisk
from holdfast.journal.pins import pin
from holdfast.journal.reader import JournalReader
from holdfast.journal.whole_write import is_no_space
from holdfast.ledger.node_identity import IDENTITY_NAME
from holdfast.ledger.restore import jobs_by_state
from holdfast.ledger.time_travel import verified
from holdfast.server.auth.tokens import FILE_NAME as TOKENS_NAME
from holdfast.topologies import backup_archive
from holdfast.topologies.microservices.services.owner_restore import OWNERS, owner_state

LEDGER = "ledger"
#: What lies beside a journal and belongs to it.
BESIDE = (IDENTITY_NAME, TOKENS_NAME)
PARTIAL = ".partial-"

#: Begins a stage of the work, named for people, and gives what is told of its progress.
Watch = Callable[[str], Progress]


class Proved(msgspec.Struct, frozen=True):
    """What a replay of a whole journal gave."""

    position: int
    digest: int
    last_ms: int
    jobs: dict[str, int]


class StillDisk(OsDisk):
    """A directory in which nobody removes anything: it needs no pins, and may be one that cannot be written."""

    def hold(self, name: str) -> Hold:
        return _NoHold()


class _NoHold:
    def release(self) -> None:
        """There is nothing to give up."""


def take_backup(source: Path, target: Path, *, now_ms: int, watch: Watch) -> Backup:
    """Copies a data directory to a target that must not be there yet, proves the copy, and only then names it so."""
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


def prove(kind: str, disk: Disk, progress: Progress, digest_version: int = DIGEST_VERSION) -> Proved:
    """Replays everything, comparing the digest after each frame; a `JournalError` names what is wrong."""
    if kind == LEDGER:
        proof, ledger = verified(disk, progress, digest_version)
        return Proved(proof.end_position, proof.digest, ledger.book.last_ms, jobs_by_state(ledger))
    state = owner_state(kind, disk, progress, digest_version)
    return Proved(state.position, state.digest, state.last_ms, state.counts())


@contextmanager
def opened_backup(path: Path, beside: Path, watch: Watch) -> Iterator[tuple[Backup, Disk]]:
    """A backup, unpacked next to `beside` if it is an archive, with every file compared and everything replayed."""
    if path.is_dir():
        disk = StillDisk(path)
        yield _proved(disk, watch), disk
        return
    folder = beside.with_name(f"{beside.name}{PARTIAL}{secrets.token_hex(4)}")
    with _cleaned_up(folder, f"what is in {str(path)!r}"):
        folder.mkdir(mode=0o700)
        backup_archive.unpack(path, folder)
        disk = StillDisk(folder)
        yield _proved(disk, watch), disk
        shutil.rmtree(folder)


def _proved(disk: Disk, watch: Watch) -> Backup:
    backup = read_backup(disk)
    if backup.kind != LEDGER and backup.kind not in OWNERS:
        message = f"the backup is of a kind that this Holdfast does not know: {backup.kind!r}; use a newer one"
        raise NotABackupError(message, reason="BACKUP_VERSION")
    # The frames first: they can say which position is damaged.
    try:
        proved = prove(backup.kind, disk, watch("replaying"), backup.digest_version)
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
            f"the backup gives the state {proved.digest:016x} at position {proved.position}, and should give"
            f" {backup.digest} at position {backup.copied.position}; nothing was changed, use another backup"
        )
        raise NotABackupError(message, reason="BACKUP_DAMAGED")
    return backup


def _copied(source: Disk, name: str, target: Disk, now_ms: int, watch: Watch) -> Backup:
    kind = _kind_of(source, name)
    copied = copy_journal(source, target, BESIDE, watch("copying"))
    proved = prove(kind, target, watch("proving the copy"))
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
    assert proved.position == copied.position, "what was copied is what was proved"
    check_files(target, backup, watch("comparing"))
    write_backup(target, backup)
    return backup


def _kind_of(disk: Disk, name: str) -> str:
    """Whose journal this is: the frames of a ledger say so themselves, those of an owner only that they are none's."""
    with pin(disk, 1):
        reader = JournalReader(disk)
        frame = next(iter(reader.frames(reader.first_position - 1)), None)
    try:
        if frame is None:
            return name if name in OWNERS else LEDGER
        events.decode(frame.body)
    except msgspec.MsgspecError:
        if name in OWNERS:
            return name
        raise FailedPreconditionError(
            f"{name!r} is not the journal of a ledger, and not named after one of the services that keep something"
            f" ({', '.join(OWNERS)}); name the directory as it was when it was served",
            reason="JOURNAL_OF_NOBODY",
        ) from None
    return LEDGER


def _refuse_taken(target: Path) -> None:
    """A backup never replaces or mixes with anything."""
    if not target.parent.is_dir():
        raise InvalidArgumentError(f"there is no directory {str(target.parent)!r} to put the backup into")
    if target.is_dir() and not backup_archive.is_archive(target):
        if os.path.ismount(target):
            raise InvalidArgumentError(f"{str(target)!r} is where a disk is mounted; name a directory within it")
        if not any(target.iterdir()):
            return
    if target.exists():
        raise FailedPreconditionError(f"{str(target)!r} is there already; choose another name", reason="TARGET_EXISTS")


def _rename(partial: Path, target: Path) -> None:
    """Gives the whole backup its name, durably."""
    partial.rename(target)
    descriptor = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _cleaned_up(partial: Path, what: str) -> Iterator[None]:
    """Removes everything of this name after a failure; a full disk is told as what it is."""
    try:
        yield
    except BaseException as error:
        for path in partial.parent.iterdir():
            if path.name.startswith(partial.name):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if isinstance(error, OSError) and is_no_space(error):
            raise JournalFullError(
                f"there is no room for {what} in {str(partial.parent)!r}: {error.strerror}; nothing was left there."
                " Free some space, or choose another place",
                reason="NO_SPACE",
            ) from error
        raise
