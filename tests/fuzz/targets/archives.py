"""Archives of backups: unpacking writes plain files into its folder and nowhere else, or raises an error."""

import gzip
import io
import shutil
import tarfile
import tempfile
from functools import cache
from pathlib import Path

from holdfast.journal.backup import NotABackupError
from holdfast.topologies.backup_archive import unpack

EXAMPLES = 150
IS_GUIDED = False

_FILES = {"MANIFEST": b"x" * 64, "00000000000000000001-0000000001.seg": bytes(600), "holdfast-backup.json": b"{}"}


@cache
def _folder() -> tuple[tempfile.TemporaryDirectory[str], Path]:
    made = tempfile.TemporaryDirectory(prefix="holdfast-fuzz-")
    return made, Path(made.name)


def _tar(members: list[tuple[tarfile.TarInfo, bytes]], tar_format: int = tarfile.PAX_FORMAT) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tar_format) as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return held.getvalue()


def _info(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", **pax: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.pax_headers = kind, target, dict(pax)
    return info


def seeds() -> list[bytes]:
    """A packed backup, the same compressed, and archives that are no backup."""
    good = _tar([(_info(name), content) for name, content in _FILES.items()])
    odd = [
        _tar([(_info("../escaped"), b"x")]),
        _tar([(_info("link", tarfile.SYMTYPE, "/etc/passwd"), b""), (_info("link"), b"x")]),
        _tar([(_info("hard", tarfile.LNKTYPE, "MANIFEST"), b"")]),
        _tar([(_info("twice"), b"1"), (_info("twice"), b"2")]),
        _tar([(_info("device", tarfile.CHRTYPE), b""), (_info("directory", tarfile.DIRTYPE), b"")]),
        _tar([(_info("pax", size="99999999999999", mtime="nan"), b"x")]),
        _tar([(_info("n" * 300), b"x")], tarfile.GNU_FORMAT),
    ]
    return [
        good,
        gzip.compress(good, mtime=0),
        good[:700],
        b"",
        *odd,
        b"\x1f\x8b",
        b"BZh9",
        b"\xfd7zXZ\0",
        bytes(1_024),
    ]


def fuzz(data: bytes) -> None:
    """Unpacks an archive."""
    place = _folder()[1] / "place"
    archive, into = place / "backup.tar", place / "into"
    into.mkdir(parents=True)
    archive.write_bytes(data)
    try:
        unpack(archive, into)
    except NotABackupError as error:
        assert str(archive) in error.message
    finally:
        try:
            _check(place, into)
        finally:
            shutil.rmtree(place)


def _check(place: Path, into: Path) -> None:
    """Checks that there are only private plain files, and only in their folder."""
    assert sorted(path.name for path in place.iterdir()) == ["backup.tar", "into"]
    for path in into.iterdir():
        assert path.is_file()
        assert not path.is_symlink()
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.stat().st_nlink == 1
