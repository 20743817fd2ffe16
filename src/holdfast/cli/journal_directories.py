"""Finds directories that contain a journal."""

from pathlib import Path

from holdfast.topologies.table import TOPOLOGIES


def holds_journal(directory: Path) -> bool:
    """Returns whether the directory contains a manifest or a segment."""
    from holdfast.journal.manifest import MANIFEST_NAME
    from holdfast.journal.segment import segment_names

    names = [path.name for path in directory.iterdir()]
    return MANIFEST_NAME in names or bool(segment_names(names))


def parts_of(directory: Path) -> list[str]:
    """Returns the data directories of several processes below this one, in the order in which to back them up.

    Jobs come first and results last, so that the backup has a result for every job that has ended in it.
    """
    names = [name for entry in TOPOLOGIES for part in entry.journals for name in _numbered(directory, part)]
    return [name for name in names if _is_journal(directory / name)] if not _is_journal(directory) else []


def _numbered(directory: Path, part: str) -> list[str]:
    """The names that a pattern stands for: one for each folder that matches it, numbered from 0 on."""
    if "*" not in part:
        return [part]
    return [part.replace("*", str(index)) for index, _ in enumerate(directory.glob(part))]


def nearby() -> str:
    """Returns the name of a directory with a journal in the working directory; empty if there is none."""
    return next((path.name for path in sorted(Path.cwd().iterdir()) if _is_journal(path)), "")


def nearby_jobs() -> str:
    """Returns the name of a directory in the working directory that can be served; empty if there is none."""
    folders = sorted(Path.cwd().iterdir())
    return next((path.name for path in folders if _is_journal(path) and not _is_marked(path)), "")


def _is_journal(path: Path) -> bool:
    try:
        return path.is_dir() and holds_journal(path)
    except OSError:  # not readable by this user
        return False


def _is_marked(path: Path) -> bool:
    """Returns whether the directory is a backup or the target of a restore, and so must not be served."""
    from holdfast.journal.directory_marks import BACKUP_NAME, RESTORING_NAME

    return (path / BACKUP_NAME).exists() or (path / RESTORING_NAME).exists()
