"""Backups as one file: a tar archive of the backup's directory, compressed if its name says so.

Invariant: an archive is not trusted. Only regular files with plain names are unpacked, each name once; only their owner
can read them; and their contents are compared with the backup's checksums before they are used.
"""

import gzip
import hashlib
import lzma
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from holdfast.journal.backup import Backup, NotABackupError, Progress

_PLAIN = ".tar"
_COMPRESSED = (".tar.gz", ".tgz")
_PIECE_BYTES = 1 << 20
#: Not sparse files, which may be larger than any disk.
_REGULAR = (tarfile.REGTYPE, tarfile.AREGTYPE)
#: The pattern of all file names in a backup.
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


def is_archive(path: Path) -> bool:
    """Whether a backup of this name is one file."""
    return path.name.endswith((_PLAIN, *_COMPRESSED))


def pack(folder: Path, archive: Path, *, name: str, progress: Progress) -> None:
    """Writes a directory's files into a new archive, and syncs it; its final `name` decides about compression."""
    paths = sorted(folder.iterdir())
    with archive.open("xb") as file:
        os.fchmod(file.fileno(), 0o600)
        with tarfile.open(fileobj=file, mode="w:gz" if name.endswith(_COMPRESSED) else "w") as tar:
            for done, path in enumerate(paths, 1):
                tar.add(path, path.name, recursive=False)
                progress(done, len(paths))
        file.flush()
        os.fsync(file.fileno())


def check(archive: Path, backup: Backup) -> None:
    """Reads an archive back; raises `NotABackupError` unless it contains every file of the backup unchanged."""
    with _opened(archive) as tar:
        found = {name: _hash_of(content) for name, content in _contents(archive, tar)}
    for file in backup.copied.files:
        if found.get(file.name) != file.sha256:
            raise NotABackupError(
                f"{file.name!r} in the archive differs from the file that was written", reason="BACKUP_DAMAGED"
            )


def _hash_of(content: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while piece := content.read(_PIECE_BYTES):
        digest.update(piece)
    return digest.hexdigest()


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks the files into a directory."""
    with _opened(archive) as tar:
        for name, content in _contents(archive, tar):
            with (folder / name).open("xb") as file:
                os.fchmod(file.fileno(), 0o600)
                shutil.copyfileobj(content, file, _PIECE_BYTES)


@contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(archive) as tar:
            yield tar
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, ValueError) as error:
        message = f"{str(archive)!r} is not a backup, or is damaged: {error}; use another backup"
        raise NotABackupError(message, reason="BACKUP_DAMAGED") from error


def _contents(archive: Path, tar: tarfile.TarFile) -> Iterator[tuple[str, IO[bytes]]]:
    found: set[str] = set()
    for member in tar:
        is_plain = member.type in _REGULAR and _NAME.fullmatch(member.name) and member.name not in found
        content = tar.extractfile(member) if is_plain else None
        if content is None:
            message = f"{str(archive)!r} contains {member.name[:200]!r}, which no backup contains; it was not restored"
            raise NotABackupError(message, reason="NOT_A_BACKUP")
        found.add(member.name)
        with content:
            yield member.name, content
