"""A backup: a copy of a journal up to its last complete frame, and a file that describes the copy.

    BACKUP       identity of the source, and each file's size and SHA-256; written last
    other files  the files of a journal (docs/internals/journal-format.md) and other files of the data directory

Invariants:
- The source is read and pinned, but not changed: a server may be writing to it.
- A directory without the file BACKUP is not a backup, even if all other files are complete.
- No process opens a directory with this file for writing: it would assign positions and tokens that were already
  assigned after the backup. Only a restore makes a backup usable again (docs/decisions/0011).
"""

import hashlib
from collections.abc import Callable, Iterable
from contextlib import ExitStack

import msgspec

from holdfast.journal.directory_marks import BACKUP_NAME
from holdfast.journal.disk import Disk, File
from holdfast.journal.errors import JournalDamagedError, JournalError, SnapshotDamagedError
from holdfast.journal.manifest import MANIFEST_NAME, Manifest, write_manifest
from holdfast.journal.pins import pin
from holdfast.journal.reader import sound_survey
from holdfast.journal.segment import segment_names
from holdfast.journal.snapshot import list_snapshots, read_snapshot, snapshot_name
from holdfast.journal.survey import Survey
from holdfast.journal.whole_write import read_whole, replace_file, write_fully

#: The digest version by the format of the file BACKUP.
DIGEST_VERSIONS = {1: 1, 2: 2}
BACKUP_FORMAT = max(DIGEST_VERSIONS)

_PIECE_BYTES = 1 << 20
#: Attempts to copy: a removal that began before the pin may remove a file during the copy, which is then restarted.
_TRIES = 4

#: Called after each piece with the bytes copied so far and the total.
Progress = Callable[[int, int], None]


class CopiedFile(msgspec.Struct, frozen=True):
    """One file of a backup."""

    name: str
    bytes: int
    sha256: str


class CopiedJournal(msgspec.Struct, frozen=True):
    """The contents of a copy: the journal `cluster_id` up to `position`."""

    cluster_id: str
    epoch: int
    first_position: int
    position: int
    files: list[CopiedFile]


class Backup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file BACKUP. `kind` is the owner of the journal: `ledger`, or the name of a service."""

    format: int
    version: str
    kind: str
    copied: CopiedJournal
    #: The state at `copied.position`: its digest, the time of its last event, and its numbers of jobs by state.
    digest: str
    log_time_ms: int
    jobs: dict[str, int]
    taken_ms: int
    #: SHA-256 over all fields above.
    checksum: str = ""

    def sealed(self) -> "Backup":
        """Return this record with its checksum."""
        bare = msgspec.json.encode(msgspec.structs.replace(self, checksum=""))
        return msgspec.structs.replace(self, checksum=hashlib.sha256(bare).hexdigest())

    @property
    def digest_version(self) -> int:
        """The version of the digest."""
        return DIGEST_VERSIONS[self.format]

    @property
    def bytes(self) -> int:
        """The total size of the files."""
        return sum(file.bytes for file in self.copied.files)


class NotABackupError(JournalError):
    """The directory is not a backup, or not one that this version can read."""


class BackupDamagedError(JournalError):
    """A file of a backup differs from what was backed up; nothing was changed."""


def copy_journal(source: Disk, target: Disk, beside: tuple[str, ...], progress: Progress) -> CopiedJournal:
    """Copy a journal, and those files of `beside` that exist, into an empty directory, durably.

    Raises JournalDamagedError if the source is damaged. After any failure the caller discards the target.
    """
    with pin(source, 1):
        for _ in range(_TRIES - 1):
            try:
                return _copied(source, target, beside, progress)
            except FileNotFoundError:
                for name in target.names():
                    target.remove(name)
        return _copied(source, target, beside, progress)


def copy_beside(source: Disk, target: Disk, names: Iterable[str]) -> list[str]:
    """Copy those of the files that exist, durably once the directory is synced; return their names."""
    present = set(source.names())
    meter = _Meter(0, lambda _done, _total: None)
    return [_copy(source, target, name, None, meter).name for name in names if name in present]


def write_backup(target: Disk, backup: Backup) -> None:
    """Write the file BACKUP, which makes a complete copy a backup."""
    data = msgspec.json.encode(backup.sealed())
    replace_file(target, BACKUP_NAME, msgspec.json.format(data, indent=2) + b"\n")


def read_backup(disk: Disk) -> Backup:
    """Return the description in the file BACKUP; raise NotABackupError if the directory is not a backup."""
    if BACKUP_NAME not in disk.names():
        raise NotABackupError(
            f"this directory is not a complete backup: the file {BACKUP_NAME}, which is written last, is missing; make"
            " another with `holdfast journal backup`",
            reason="NOT_A_BACKUP",
        )
    data = read_whole(disk, BACKUP_NAME)
    try:
        backup = msgspec.json.decode(data, type=Backup)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NotABackupError(
            f"the file {BACKUP_NAME} cannot be read: {error}; use another backup, or the Holdfast that made this one",
            reason="BACKUP_UNREADABLE",
        ) from error
    if backup.format not in DIGEST_VERSIONS:
        message = f"the backup has format {backup.format}; this Holdfast reads 1 to {BACKUP_FORMAT}: use a newer one"
        raise NotABackupError(message, reason="BACKUP_VERSION")
    if backup != backup.sealed():
        raise _damaged(BACKUP_NAME, "its checksum does not match")
    return backup


def check_files(disk: Disk, backup: Backup, progress: Progress) -> None:
    """Compare every file with its recorded size and hash; BackupDamagedError names the first that differs."""
    present, done = set(disk.names()), 0
    for expected in backup.copied.files:
        if expected.name not in present:
            raise _damaged(expected.name, "it is missing")
        file = disk.open(expected.name)
        try:
            if file.size() != expected.bytes:
                raise _damaged(expected.name, f"it must be {expected.bytes} bytes, got {file.size()}")
            if _hash_of(file, expected.bytes) != expected.sha256:
                raise _damaged(expected.name, "its SHA-256 differs from the one in the backup")
        finally:
            file.close()
        done += expected.bytes
        progress(done, backup.bytes)
    known = {file.name for file in backup.copied.files}
    for name in segment_names(sorted(present - known)):
        raise _damaged(name, "it was not part of the backup")


def _copied(source: Disk, target: Disk, beside: tuple[str, ...], progress: Progress) -> CopiedJournal:
    found = sound_survey(source)
    if found.tail is None:
        raise JournalDamagedError(MANIFEST_NAME, 0, 0, "there is no segment: this directory was never served")
    present = source.names()
    # A server may be writing to the newest segment: copy it up to the last complete frame.
    sizes = {header.name: size for header, size in zip(found.headers, found.sizes, strict=True)}
    sizes[found.newest] = found.tail.offset
    snapshot = _leading_snapshot(source, found)
    names = [*([snapshot] if snapshot else []), *sizes, *(name for name in beside if name in present)]
    meter = _Meter(sum(sizes.values()), progress)
    files = [_copy(source, target, name, sizes.get(name), meter) for name in names]
    write_manifest(target, _manifest_of(found))
    manifest = read_whole(target, MANIFEST_NAME)
    files.append(CopiedFile(MANIFEST_NAME, len(manifest), hashlib.sha256(manifest).hexdigest()))
    target.sync_dir()
    first = found.headers[0]
    return CopiedJournal(first.cluster_id.hex(), found.epoch, first.first_position, found.end_position, files)


def _leading_snapshot(source: Disk, found: Survey) -> str:
    """Return the oldest good snapshot from which the frames can be replayed; "" if the journal begins at position 1."""
    first = found.headers[0].first_position
    if first == 1:
        return ""
    for position in list_snapshots(source):
        if first - 1 <= position <= found.end_position:
            try:
                for _ in read_snapshot(source, position):
                    pass
            except SnapshotDamagedError:
                continue
            return snapshot_name(position)
    problem = "there is no good snapshot to replay it from, and the segments before it were removed"
    raise JournalDamagedError(found.headers[0].name, 0, first, problem)


def _manifest_of(found: Survey) -> Manifest:
    """Return a manifest whose mark is the end of the copy."""
    newest = found.headers[-1]
    return Manifest(
        cluster_id=newest.cluster_id,
        newest_first_position=newest.first_position,
        epoch=newest.epoch,
        mark_position=found.end_position,
        mark_checksum=found.end_checksum,
    )


class _Meter:
    """Counts the bytes that were copied."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._done = 0
        self._total = total
        self._progress = progress

    def add(self, size: int) -> None:
        self._done += size
        self._progress(self._done, max(self._total, self._done))


def _copy(source: Disk, target: Disk, name: str, limit: int | None, meter: _Meter) -> CopiedFile:
    """Copy the first `limit` bytes of a file, or all of it, durably."""
    digest, offset = hashlib.sha256(), 0
    with ExitStack() as stack:
        file = source.open(name)
        stack.callback(file.close)
        copy = target.create(name)
        stack.callback(copy.close)
        while piece := file.read_at(offset, _piece_bytes(offset, limit)):
            write_fully(copy, offset, piece)
            digest.update(piece)
            offset += len(piece)
            meter.add(len(piece))
        copy.sync()
    return CopiedFile(name, offset, digest.hexdigest())


def _hash_of(file: File, size: int) -> str:
    digest, offset = hashlib.sha256(), 0
    while piece := file.read_at(offset, _piece_bytes(offset, size)):
        digest.update(piece)
        offset += len(piece)
    return digest.hexdigest()


def _piece_bytes(offset: int, limit: int | None) -> int:
    return _PIECE_BYTES if limit is None else min(_PIECE_BYTES, limit - offset)


def _damaged(name: str, problem: str) -> BackupDamagedError:
    return BackupDamagedError(
        f"file {name!r} of the backup is damaged: {problem}. Nothing was changed; use another backup.",
        reason="BACKUP_DAMAGED",
        details={"file": name},
    )
